"""Estimator: a trained network, ready for records. Import it without JAX; it starts when needed."""

import functools
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
from greybayes.amortized.forward import Outputs
from greybayes.amortized.header import OWN, check_header
from greybayes.amortized.line import Line
from greybayes.amortized.mixture import Mixture
from greybayes.amortized.store import read_file, write_file
from greybayes.amortized.trained_for import TrainedFor
from greybayes.errors import EstimatorError, Status, nearest
from greybayes.estimate import Estimate
from greybayes.record import Record

if TYPE_CHECKING:
    from greybayes.amortized.passing import Pass
    from greybayes.amortized.training import Weights
    from greybayes.model import Model

PRETRAINED = Path(__file__).parent / "pretrained"
SUFFIX = ".estimator"
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

    @functools.cached_property
    def _pass(self) -> "Pass":
        from greybayes.amortized.passing import Pass

        return Pass(self)

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all."""
        if self.header["architecture"]["network"] == OWN:
            raise EstimatorError(
                "an estimator with a network of your own cannot be saved: its file would not hold "
                "that module. Keep it in the program that trained it."
            )
        write_file(path, dict(self.header), dict(self.arrays))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, model: "Model | type[Model] | None" = None) -> "Estimator":
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
        if "input" in arrays and arrays["input"].shape != trained_for:
            raise EstimatorError(f"{path} holds an input of another shape than its header says.")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise EstimatorError(f"{path} holds weights that are no numbers; train it anew.")
        halves = [name for name, array in arrays.items() if array.dtype == np.float16]
        estimator = cls(header, arrays | {name: arrays[name].astype(np.float32) for name in halves})
        if model is None:
            check_built_in(header)
        else:
            from greybayes.amortized.identity import check_identity
            from greybayes.zoo import get_model

            model = get_model(model)  # A class, too.
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
        y, u = TrainedFor(self.header, self.input).read(several)
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
            found = self._pass(y, u, mean_only)
        return found._replace(theta=found.theta.astype(float))


def load(name: str | Path, model: "Model | type[Model] | None" = None) -> Estimator:
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
