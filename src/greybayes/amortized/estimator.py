"""Estimator: a trained network, ready for records. Import it without JAX; it starts when needed."""

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from greybayes.amortized import forward, typical
from greybayes.amortized.built_in import check_built_in
from greybayes.amortized.channels import Scaling
from greybayes.amortized.faults import statistics
from greybayes.amortized.forward import Outputs
from greybayes.amortized.header import check_header
from greybayes.amortized.line import Line
from greybayes.amortized.mixture import Mixture
from greybayes.amortized.store import read_file, write_file
from greybayes.errors import EstimatorError, Status, nearest
from greybayes.estimate import Estimate
from greybayes.record import Record

if TYPE_CHECKING:
    from greybayes.amortized.training import Weights
    from greybayes.model import Model

PRETRAINED = Path(__file__).parent / "pretrained"
SUFFIX = ".estimator"
# How far a record's input may be from the one trained for, as a share of its range.
_SAME_INPUT = 1e-3
# Steps of records computed at a time: their features then stay in the cache of a core.
_ROWS = 5000

Engine = Literal["jax", "numpy"]


@dataclass(frozen=True, eq=False)
class Estimator:
    """A trained network: records in, estimates out, a millisecond each.

    `header` says what it was trained for and how, `arrays` are its weights by name. Both are what
    the file holds; nothing else is kept.

    >>> estimator = load("growth2")
    >>> estimator.names
    ('theta2', 'theta6', 'theta7', 'theta8')
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters it estimates."""
        return tuple(entry["name"] for entry in self.header["theta"])

    @property
    def n_steps(self) -> int:
        """The length of the records it was trained for."""
        return self.header["n_steps"]

    @property
    def training_seconds(self) -> float:
        """How long it was trained, with what it started from."""
        return self.header["seconds"] + self.header.get("before", {}).get("seconds", 0.0)

    @property
    def input(self) -> Float[np.ndarray, "steps input"] | None:
        """The input signal it was trained for; None where it was trained for any of a design."""
        return self.arrays.get("input")

    @property
    def scaling(self) -> Scaling:
        """The scales of the channels."""
        return Scaling.from_dict(self.header["scaling"])

    @functools.cached_property
    def line(self) -> Line | None:
        """The line on which its posterior is a mixture of normals."""
        return Line.of(self.header["theta"])

    @functools.cached_property
    def model(self) -> "Model":
        """The model it was trained for."""
        from greybayes.amortized.identity import check_identity, model_of

        model = model_of(self.header["model"]["name"])
        check_identity(model, self.header)
        return model

    @functools.cached_property
    def weights(self) -> "Weights":
        """Network and head as one Equinox module."""
        from greybayes.amortized.identity import weights_from

        return weights_from(self.model, self.header, self.arrays)

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all."""
        write_file(path, dict(self.header), dict(self.arrays))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, model: "Model | None" = None) -> "Estimator":
        """Read a file. Where the model is a user's own, pass it; it must be the one trained for.

        A file may hold half of each number's digits, to be small; here they are single.
        """
        header, arrays = read_file(path)
        if header.get("kind") != "estimator":
            raise EstimatorError(
                f"{path} is a checkpoint of an unfinished training; go on with "
                f"greybayes train --resume {path}."
            )
        check_header(header, path)
        trained_for = (header["n_steps"], len(header["inputs"]))
        if arrays.get("input", np.empty(trained_for)).shape != trained_for:
            raise EstimatorError(f"{path} holds an input of another shape than its header says.")
        halves = [name for name, array in arrays.items() if array.dtype == np.float16]
        estimator = cls(header, arrays | {name: arrays[name].astype(np.float32) for name in halves})
        if model is None:
            check_built_in(header)
        else:
            from greybayes.amortized.identity import check_identity

            check_identity(model, header)
            estimator.__dict__["model"] = model
        return estimator

    def estimate(
        self,
        records: Record | Sequence[Record],
        *,
        engine: Engine = "jax",
        mean_only: bool = False,
    ) -> Any:
        """An `Estimate` for a record, or a list of them for several, all in one pass.

        `engine="numpy"` does without JAX, which pays for a single call in a new process.
        `mean_only` leaves out the posterior and the misfit check, for the last bit of speed.
        """
        started = time.perf_counter()
        several = [records] if isinstance(records, Record) else list(records)
        if not several:
            return []
        y = self._checked(several)
        u = self._inputs(several) if self.input is None else None
        found = self.outputs(y, u, engine=engine, mean_only=mean_only)
        seconds = (time.perf_counter() - started) / len(several)
        common = {
            "method": "deepbayes",
            "model": self.header["model"]["name"],
            "seconds": seconds,
        }
        names = self.names
        estimates = [
            Estimate(names, theta, **common, **extra)
            for theta, extra in zip(found.theta, self._extras(found), strict=True)
        ]
        return estimates[0] if isinstance(records, Record) else estimates

    def _extras(self, found: Outputs) -> list[dict[str, Any]]:
        """What an estimate says beside the mean: the posterior, and whether it is to be trusted."""
        extras: list[dict[str, Any]] = [{} for _ in found.theta]
        if found.raw is not None and self.line is not None:
            n_components = self.header["architecture"]["sizes"]["components"]
            for extra, raw in zip(extras, found.raw, strict=True):
                extra["posterior"] = Mixture(self.line, raw, n_components)
        if found.distance is not None:
            p_values = typical.p_values(self.arrays[typical.REFERENCE], found.distance)
            for extra, p_value in zip(extras, p_values.tolist(), strict=True):
                extra["diagnostics"] = {"misfit_p": p_value}
                if p_value < typical.LEVEL:
                    extra["status"] = Status.misfit
        return extras

    def means(
        self,
        y: Float[np.ndarray, "batch steps output"],
        u: Float[np.ndarray, "batch steps input"] | None = None,
        *,
        engine: Engine = "jax",
    ) -> Float[np.ndarray, "batch param"]:
        """The conditional mean of theta for each of a batch of outputs."""
        return self.outputs(y, u, engine=engine, mean_only=True).theta

    def posteriors(
        self,
        y: Float[np.ndarray, "batch steps output"],
        u: Float[np.ndarray, "batch steps input"] | None = None,
    ) -> list[Mixture]:
        """The posterior of theta for each of a batch of outputs."""
        return [extra["posterior"] for extra in self._extras(self.outputs(y, u))]

    def outputs(
        self,
        y: Float[np.ndarray, "batch steps output"],
        u: Float[np.ndarray, "batch steps input"] | None = None,
        *,
        engine: Engine = "jax",
        mean_only: bool = False,
    ) -> Outputs:
        """All that the network says of each of a batch of outputs, or the mean alone."""
        inputs = self.input if u is None else u
        if inputs is None:
            raise EstimatorError("this estimator was trained for random inputs; pass u as well.")
        if engine == "numpy" and forward.can_run(self.header):
            channels = self.scaling.channels(np, y, inputs.astype(np.float32))
            try:
                found = forward.outputs(self.header, self.arrays, channels, mean_only=mean_only)
            except (KeyError, ValueError, TypeError, ArithmeticError):
                raise EstimatorError(
                    "the weights of the estimator are not those that its header describes."
                ) from None
        else:
            found = self._in_parts(y, u, mean_only)
        return found._replace(theta=found.theta.astype(float))

    def _in_parts(self, y: np.ndarray, u: np.ndarray | None, mean_only: bool) -> Outputs:
        """All cores at once where that pays, on parts small enough for the cache of a core."""
        import jax

        count = len(y)
        largest = max(1, _ROWS // self.n_steps)
        n_devices = jax.device_count() if count >= largest * jax.device_count() else 1
        parts = -(-count // (n_devices * largest))
        # Few compilations, whatever number of records comes, and little computed for nothing.
        size = min(largest, 1 << (count - 1).bit_length()) if parts == 1 else largest
        step = 1 << max(0, parts.bit_length() - 4)
        parts = -(-parts // step) * step
        shape = (n_devices, parts, size)

        def split(a: np.ndarray) -> np.ndarray:
            spare = math.prod(shape) - count
            filled = np.concatenate([a, np.repeat(a[-1:], spare, axis=0)]) if spare else a
            return filled.reshape(*shape, *a.shape[1:])

        given = [split(a) for a in (y, u) if a is not None]
        packed = self._compiled(n_devices, mean_only, *given)
        # The first three axes are those of the parts.
        return self._unpacked(packed.reshape(-1, packed.shape[-1])[:count])

    def _unpacked(self, packed: Float[np.ndarray, "batch number"]) -> Outputs:
        """Theta, the numbers of the mixture and the distance, which come as one array."""
        n_theta = len(self.names)
        if packed.shape[1] == n_theta:
            return Outputs(packed, None, None)
        checks = typical.can_check(self.arrays)
        raw = packed[:, n_theta : -1 if checks else None]
        return Outputs(
            packed[:, :n_theta], raw if raw.size else None, packed[:, -1] if checks else None
        )

    @functools.cached_property
    def _compiled(self):
        import jax
        import jax.numpy as jnp
        from jax.sharding import Mesh, PartitionSpec

        from greybayes._devices import without_ynnpack
        from greybayes.amortized.heads import MeanAndPosterior

        weights, scaling, shared = self.weights, self.scaling, self.input
        comparison = {n: a for n, a in self.arrays.items() if n in typical.NEEDED}

        def part(mean_only: bool, y, u):
            channels = scaling.channels(jnp, y, u)
            summary = weights.network.summarise(channels)
            theta = weights.head.theta(summary)
            found = [theta]
            if isinstance(weights.head, MeanAndPosterior) and not mean_only:
                found.append(weights.head.mixture(summary))
            if comparison and not mean_only:
                seen = typical.Seen(summary, theta, statistics(jnp, channels, y.shape[-1]))
                found.append(typical.distance(jnp, comparison, seen)[:, None])
            # One array: to fetch three from every core takes three times as long.
            return jnp.concatenate(found, axis=-1)

        def on_device(mean_only: bool, y, u=None):
            """Its parts one after the other, with the input of all or each with its own."""
            if u is None:
                run = functools.partial(part, mean_only, u=jnp.asarray(shared))
                return jax.lax.map(run, y[0])[None]
            return jax.lax.map(lambda given: part(mean_only, *given), (y[0], u[0]))[None]

        @functools.cache
        def compiled(n_devices: int, mean_only: bool):
            split = PartitionSpec("cores")
            mesh = Mesh(np.array(jax.devices()[:n_devices]), ("cores",))
            run = functools.partial(on_device, mean_only)
            # Weights are constants of the program: as arguments they would be handed over anew.
            return jax.jit(
                jax.shard_map(run, mesh=mesh, in_specs=split, out_specs=split, check_vma=False),
                compiler_options=without_ynnpack(),
            )

        def call(n_devices: int, mean_only: bool, *given: np.ndarray) -> np.ndarray:
            return np.asarray(compiled(n_devices, mean_only)(*given))

        return call

    def _checked(self, records: list[Record]) -> Float[np.ndarray, "batch steps output"]:
        """The outputs of all records; one that it was not trained for is refused."""
        shape = (self.n_steps, len(self.header["outputs"]))
        for record in records:
            if record.y.shape != shape:
                raise self._refusal(record, self._wrong_shape(record))
            if record.dt is not None and abs(record.dt - self.header["dt"]) > 1e-3 * record.dt:
                raise self._refusal(
                    record,
                    f"has dt = {record.dt:g}; this estimator was trained for "
                    f"{self.header['dt']:g}. Resample the record, or set dt in the model and train "
                    f"again: {self._command}.",
                )
        y = np.stack([record.y for record in records])
        missing = np.isnan(y).any((1, 2))
        if missing.any():
            record = records[int(missing.argmax())]
            raise self._refusal(
                record,
                f"has {record.n_missing} missing samples; this estimator was trained for complete "
                "records. Fill the gaps, or cut the record and train for what is left: "
                f"{self._command} --length N.",
            )
        self._check_inputs([record for record in records if record.u is not None])
        return y.astype(np.float32)

    def _inputs(self, records: list[Record]) -> Float[np.ndarray, "batch steps input"]:
        """The inputs of all records, where it was trained for any of a design."""
        shape = (self.n_steps, len(self.header["inputs"]))
        for record in records:
            if record.u is None or record.u.shape != shape:
                came = "no input" if record.u is None else f"inputs of shape {record.u.shape}"
                raise self._refusal(
                    record,
                    f"has {came}; this estimator was trained for any input of the design "
                    f"{self.header['input']['design']}, of shape {shape}. Name the columns: "
                    "FILE:u=COLUMN.",
                )
        return np.stack([record.u for record in records if record.u is not None]).astype(np.float32)

    def _check_inputs(self, records: list[Record]) -> None:
        trained = self.input
        if trained is None or not records:
            return
        for record in records:
            if record.u is not None and record.u.shape != trained.shape:
                raise self._refusal(
                    record,
                    f"has inputs of shape {record.u.shape}; this estimator was trained for "
                    f"{trained.shape}. Train one for these: {self._command} --input FILE.",
                )
        given = np.stack([record.u for record in records if record.u is not None])
        differences = np.abs(given - trained)
        largest = differences.max((1, 2), initial=0.0)
        if largest.max() > _SAME_INPUT * max(float(np.ptp(trained)), 1e-12):
            raise self._refusal(
                records[int(largest.argmax())],
                "has another input than this estimator was trained for, "
                f"{self.header['input']['design']} (they differ by up to {largest.max():.3g}). "
                f"Train one for this input: {self._command} --input FILE.",
            )

    def _wrong_shape(self, record: Record) -> str:
        outputs = self.header["outputs"]
        if record.y.shape[1] != len(outputs):
            return (
                f"has {record.y.shape[1]} outputs; this estimator was trained for {len(outputs)}: "
                f"{', '.join(outputs)}. Name its columns, or train for a model of these outputs: "
                "greybayes train MODEL."
            )
        return (
            f"has {record.n_steps} samples; this estimator was trained for {self.n_steps}. Train "
            f"one for this length: {self._command} --length {record.n_steps}."
        )

    @property
    def _command(self) -> str:
        return f"greybayes train {self.header['model']['name']}"

    def _refusal(self, record: Record, why: str) -> EstimatorError:
        return EstimatorError(f"{f'record {record.name}' if record.name else 'the record'} {why}")


def load(name: str | Path, model: "Model | None" = None) -> Estimator:
    """A pretrained estimator by name, or one from a file.

    >>> load("growth2").header["model"]["name"]
    'growth2'
    """
    path = Path(name)
    if path.is_file() or path.suffix:
        return Estimator.load(path, model)
    shipped = PRETRAINED / f"{name}{SUFFIX}"
    if not shipped.exists():
        known = sorted(file.stem for file in PRETRAINED.glob(f"*{SUFFIX}"))
        raise EstimatorError(
            f"there is no estimator {name}, neither shipped nor a file; {nearest(str(name), known)}"
        )
    return Estimator.load(shipped, model)
