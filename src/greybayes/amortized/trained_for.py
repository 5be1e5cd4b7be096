"""Which records an estimator was trained for; others are refused, with what to do."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from greybayes.errors import EstimatorError
from greybayes.record import Record, check_channels, label

# How far a record's input may be from the one trained for, as a share of the range of that.
_SAME_INPUT = 1e-3
# How far an output may be from the middle of those trained for, in their standard deviations.
_FARTHEST = 1e6
# The squares of larger ones are beyond single precision.
_LARGEST = 1e18
# The same for an input, where a design was trained for and not one signal.
_FARTHEST_INPUT = 10.0


class TrainedFor(NamedTuple):
    """The header of an estimator, and the input signal; None where it was any of a design."""

    header: Mapping[str, Any]
    input: Float[np.ndarray, "steps input"] | None

    def read(
        self, records: list[Record]
    ) -> tuple[
        Float[np.ndarray, "batch steps output"], Float[np.ndarray, "batch steps input"] | None
    ]:
        """The outputs of all records, and the inputs where each may have its own."""
        y = self._outputs(records)
        if self.input is None:
            return y, self._inputs(records)
        self._check_same([record for record in records if record.u is not None], self.input)
        return y, None

    def _outputs(self, records: list[Record]) -> Float[np.ndarray, "batch steps output"]:
        n_steps, dt = self.header["n_steps"], self.header["dt"]
        outputs, inputs = tuple(self.header["outputs"]), tuple(self.header["inputs"])
        for record in records:
            if record.y.shape != (n_steps, len(outputs)):
                raise _refusal(record, self._wrong_shape(record))
            check_channels(record, outputs, inputs)
            if record.dt is None and record.times is not None:
                raise _refusal(
                    record,
                    f"has uneven times; this estimator was trained for dt = {dt:g}. Resample the "
                    "record.",
                )
            if record.dt is not None and abs(record.dt - dt) > 1e-3 * record.dt:
                raise _refusal(
                    record,
                    f"has dt = {record.dt:g}; this estimator was trained for {dt:g}. Resample the "
                    f"record, or set dt in the model and train again: {self._command}.",
                )
        y = np.stack([record.y for record in records])
        missing = np.isnan(y).any((1, 2))
        if missing.any():
            record = records[int(missing.argmax())]
            raise _refusal(
                record,
                f"has {record.n_missing} missing samples; this estimator was trained for complete "
                "records. Fill the gaps, or cut the record and train for what is left: "
                f"{self._command}{self._input_option(record)} --length N.",
            )
        self._check_range(records, y)
        return y.astype(np.float32)

    def _check_range(
        self, records: list[Record], y: Float[np.ndarray, "batch steps output"]
    ) -> None:
        """Refuse numbers of which no network can say anything, not even that they do not fit."""
        scaling = self.header["scaling"]
        with np.errstate(over="ignore"):  # Infinity is far, too.
            off = np.abs(y - scaling["y_offset"]) / scaling["y_scale"]
        # The paper's networks read y as it is: their file does not tell what is far.
        is_paper = self.header["architecture"]["head"] == "paper"
        if off.max() > (_LARGEST if is_paper else _FARTHEST):
            row = int(off.max((1, 2)).argmax())
            raise _refusal(
                records[row],
                f"has outputs up to {np.abs(y[row]).max():.3g}, out of all proportion to what the "
                "model makes of its prior. Look for a wrong unit or a damaged sample.",
            )

    def _inputs(self, records: list[Record]) -> Float[np.ndarray, "batch steps input"]:
        shape = (self.header["n_steps"], len(self.header["inputs"]))
        for record in records:
            if record.u is None or record.u.shape != shape:
                came = "no input" if record.u is None else f"inputs of shape {record.u.shape}"
                raise _refusal(
                    record,
                    f"has {came}; this estimator was trained for any input of the design "
                    f"{design_text(self.header['input'])}, of shape {shape}. Name the columns: "
                    "FILE:u=COLUMN.",
                )
        u = np.stack([record.u for record in records if record.u is not None])
        scaling = self.header["scaling"]
        off = np.abs((u - scaling["u_offset"]) / scaling["u_scale"]).max((1, 2))
        if off.max() > _FARTHEST_INPUT:
            record = records[int(off.argmax())]
            raise _refusal(
                record,
                f"has inputs up to {np.abs(u[off.argmax()]).max():.3g}, far beyond those of the "
                f"design that this estimator was trained for, {design_text(self.header['input'])}. "
                f"Train one for such inputs: {self._command} --input DESIGN.",
            )
        return u.astype(np.float32)

    def _check_same(self, records: list[Record], trained: Float[np.ndarray, "steps input"]) -> None:
        """Refuse records whose input is not the one trained for."""
        for record in records:
            if record.u is not None and record.u.shape != trained.shape:
                raise _refusal(
                    record,
                    f"has inputs of shape {record.u.shape}; this estimator was trained for "
                    f"{trained.shape}. Train one for these: {self._command} --input FILE.",
                )
        if not records:
            return
        given = np.stack([record.u for record in records if record.u is not None])
        largest = np.abs(given - trained).max((1, 2), initial=0.0)
        if largest.max() > _largest_difference(trained):
            raise _refusal(
                records[int(largest.argmax())],
                "has another input than this estimator was trained for, "
                f"{design_text(self.header['input'])} (they differ by up to {largest.max():.3g}). "
                f"Train one for this input: {self._command} --input FILE; or for all of a kind, "
                "such as --input prbs.",
            )

    def _wrong_shape(self, record: Record) -> str:
        outputs, n_steps = self.header["outputs"], self.header["n_steps"]
        if record.y.shape[1] != len(outputs):
            return (
                f"has {record.y.shape[1]} outputs; this estimator was trained for {len(outputs)}: "
                f"{', '.join(outputs)}. Name its columns, or train for a model of these outputs: "
                "greybayes train MODEL."
            )
        return (
            f"has {record.n_steps} samples; this estimator was trained for {n_steps}. Train one "
            f"for this length: {self._command}{self._input_option(record)} --length "
            f"{record.n_steps}."
        )

    def _input_option(self, record: Record) -> str:
        """What a training must be told of the input, beyond what the model says by itself."""
        if not self.header["inputs"]:
            return ""
        # A formula goes on beyond the length trained for, samples do not.
        samples = self.header["input"]["design"] == "signal"
        other = self.input is not None and not _begin_alike(record.u, self.input)
        return f" --input {'FILE' if samples or other else design_text(self.header['input'])}"

    @property
    def _command(self) -> str:
        return f"greybayes train {self.header['model']['name']}"


def design_text(design: Mapping[str, Any]) -> str:
    """The design of a header as `--input` takes it, or the bare name of one that cannot be typed.

    >>> design_text({"design": "prbs", "amplitude": [1.0, 2.0], "hold": 5, "order": None})
    'prbs:amplitude=1..2,hold=5'
    """
    name = design["design"]
    if name == "stack":
        return "/".join(map(design_text, design["designs"]))
    given = {key: value for key, value in design.items() if key != "design" and value is not None}
    if name == "signal" or any(isinstance(v, list) and len(v) != 2 for v in given.values()):
        return name
    fields = ",".join(f"{key}={_typed(value)}" for key, value in sorted(given.items()))
    return f"{name}:{fields}" if fields else name


def _typed(value: Any) -> str:
    if isinstance(value, list):
        return "..".join(map(_typed, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _begin_alike(u: np.ndarray | None, trained: Float[np.ndarray, "steps input"]) -> bool:
    """Whether two inputs are the same as far as both go; one that is not known is."""
    if u is None:
        return True
    if u.shape[1] != trained.shape[1]:
        return False
    n = min(len(u), len(trained))
    return float(np.abs(u[:n] - trained[:n]).max(initial=0.0)) <= _largest_difference(trained)


def _largest_difference(trained: Float[np.ndarray, "steps input"]) -> float:
    """How far a record's input may be from the one trained for."""
    return _SAME_INPUT * max(float(np.ptp(trained)), 1e-12)


def _refusal(record: Record, why: str) -> EstimatorError:
    return EstimatorError(f"{label(record)} {why}")
