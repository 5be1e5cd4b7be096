"""Estimate: the one result type, whatever method it comes from."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Float

from greybayes._arviz import load_arviz
from greybayes.errors import GreybayesError, Status, nearest
from greybayes.record import Record

if TYPE_CHECKING:
    import arviz
    from rich.table import Table


@runtime_checkable
class Posterior(Protocol):
    """A density of theta that can be drawn from."""

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n param"]:
        """Draws."""
        ...

    def log_prob(self, theta: Float[np.ndarray, "*lanes param"]) -> Float[np.ndarray, "*lanes"]:
        """Its log-density."""
        ...


class _OfPosterior:
    """A field that, where nobody gave it, is computed from the posterior when first asked for."""

    def __get__(self, estimate: "Estimate | None", cls: type) -> Any:
        if estimate is None:
            return None  # The default of the field.
        found = estimate.__dict__["_covariance"]
        if found is None and estimate.posterior is not None:
            found = np.atleast_2d(np.cov(estimate._drawn, rowvar=False))
            found.flags.writeable = False
            estimate.__dict__["_covariance"] = found
        return found

    def __set__(self, estimate: "Estimate", value: Any) -> None:
        estimate.__dict__["_covariance"] = value


# Draws of a posterior from which intervals and covariance are computed.
_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a method says about theta after one record.

    A method gives what it has: a mean always; a covariance, samples with or without weights, or a
    density, where it knows its uncertainty. What follows from them is computed here: standard
    deviations, intervals, correlations. Samples with a chain axis `(chain, draw, param)` keep it.

    >>> estimate = Estimate.from_samples(("a",), np.array([[1.0], [2.0], [3.0]]), method="demo")
    >>> estimate.mean, estimate.interval(0.5)
    (array([2.]), array([[1.5, 2.5]]))
    """

    names: tuple[str, ...]
    mean: Float[np.ndarray, " param"]
    covariance: Float[np.ndarray, "param param"] | None = cast(Any, _OfPosterior())  # noqa: RUF009
    samples: Float[np.ndarray, "*shape param"] | None = None
    weights: Float[np.ndarray, "*shape"] | None = None
    """One for each sample; they need not sum to one."""
    method: str = ""
    model: str = ""
    seconds: float | None = None
    status: Status = Status.ok
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    """What the method watched: acceptance, R-hat, effective draws and the like."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    posterior: Posterior | None = None

    def __post_init__(self) -> None:
        n = len(self.names)
        self._freeze("mean", self.mean, (n,))
        self._freeze("covariance", self.__dict__["_covariance"], (n, n))
        self._freeze("samples", self.samples, (..., n))
        if self.weights is not None:
            self._freeze("weights", self.weights, ())
            _check_weights(self.samples, self.weights)

    def _freeze(self, name: str, value: Any, shape: tuple) -> None:
        """Keep a copy of an array that nobody can write to, of the shape it must have."""
        if value is None:
            return
        value = np.array(value, dtype=float)
        came = value.shape[-1:] if shape[:1] == (...,) else value.shape
        if shape and came != tuple(size for size in shape if size is not ...):
            expected = str(shape).replace("Ellipsis", "...")
            raise GreybayesError(f"the {name} has shape {value.shape}, expected {expected}.")
        value.flags.writeable = False
        object.__setattr__(self, name, value)

    @classmethod
    def from_samples(
        cls,
        names: tuple[str, ...],
        samples: Float[np.ndarray, "*shape param"],
        weights: Float[np.ndarray, "*shape"] | None = None,
        **rest: Any,
    ) -> "Estimate":
        """An estimate whose mean and covariance are those of (weighted) samples."""
        # Made first without them, so that shapes are checked before they are used.
        bare = cls(names, np.zeros(len(names)), None, samples, weights, **rest)
        assert bare.samples is not None
        flat = bare.samples.reshape(-1, len(names))
        share = np.ones(len(flat)) if bare.weights is None else bare.weights.ravel()
        mean = np.average(flat, axis=0, weights=share)
        centred = flat - mean
        covariance = (share[:, None] * centred).T @ centred / share.sum()
        return bare.replace(mean=mean, covariance=covariance)

    @functools.cached_property
    def _drawn(self) -> Float[np.ndarray, "draw param"]:
        """Fixed draws of the posterior: the same estimate always tells the same."""
        assert self.posterior is not None
        return self.posterior.sample(_DRAWS, np.random.default_rng(0))

    def sample(self, n: int = 1000, seed: int = 0) -> Float[np.ndarray, "n param"]:
        """Draws of theta: of the density where there is one, else from the samples.

        >>> estimate = Estimate.from_samples(("a",), np.array([[1.0], [2.0]]), np.array([0.0, 1.0]))
        >>> estimate.sample(3).ravel()
        array([2., 2., 2.])
        """
        rng = np.random.default_rng(seed)
        if self.posterior is not None:
            return self.posterior.sample(n, rng)
        if self.samples is None:
            raise GreybayesError(f"{self.method or 'this method'} gives no posterior to draw from.")
        flat = np.reshape(self.samples, (-1, len(self.names)))
        share = None if self.weights is None else np.ravel(self.weights) / np.sum(self.weights)
        return flat[rng.choice(len(flat), n, p=share)]

    def log_prob(self, theta: Float[np.ndarray, "*lanes param"]) -> Float[np.ndarray, "*lanes"]:
        """The log-density of theta after the record, where the method gives one."""
        if self.posterior is None:
            raise GreybayesError(
                f"{self.method or 'this method'} gives no density of theta; an estimator trained "
                "with the head posterior does."
            )
        return self.posterior.log_prob(np.asarray(theta, float))

    @property
    def std(self) -> Float[np.ndarray, " param"] | None:
        """Standard deviations, where the method knows its uncertainty."""
        return None if self.covariance is None else np.sqrt(np.diag(self.covariance))

    @property
    def correlation(self) -> Float[np.ndarray, "param param"] | None:
        """Correlations between the parameters."""
        if self.covariance is None or self.std is None:
            return None
        # A parameter that is certain is correlated with none.
        with np.errstate(invalid="ignore"):
            return self.covariance / np.outer(self.std, self.std)

    def interval(self, level: float = 0.95) -> Float[np.ndarray, "param 2"] | None:
        """Central intervals: of samples or the posterior where there are any, else of a normal."""
        if not 0 < level < 1:
            raise GreybayesError(f"the level of an interval is {level}, expected one in (0, 1).")
        ends = np.array([(1 - level) / 2, (1 + level) / 2])
        if self.samples is not None:
            flat = np.reshape(self.samples, (-1, len(self.names)))
            if self.weights is None:
                return np.quantile(flat, ends, axis=0).T
            # NumPy has weights for this one of its rules only: the step function's inverse.
            rule: Any = {"method": "inverted_cdf", "weights": np.ravel(self.weights)}
            return np.stack([np.quantile(column, ends, **rule) for column in flat.T])
        if self.posterior is not None:
            return np.quantile(self._drawn, ends, axis=0).T
        if self.std is None:
            return None
        from scipy.special import ndtri

        return self.mean[:, None] + self.std[:, None] * ndtri(ends)

    def __getitem__(self, name: str) -> float:
        """The mean of one parameter: `estimate["theta2"]`."""
        if name not in self.names:
            raise GreybayesError(
                f"there is no parameter {name} in this estimate; {nearest(name, self.names)}"
            )
        return float(self.mean[self.names.index(name)])

    def replace(self, **changes: Any) -> "Estimate":
        """The same estimate with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """A plain object for JSON: what `--json` prints for each record."""
        interval = self.interval()
        parameters = []
        for i, name in enumerate(self.names):
            row: dict[str, Any] = {"name": name, "mean": float(self.mean[i])}
            if self.std is not None:
                row["std"] = float(self.std[i])
            if interval is not None:
                row["interval95"] = [float(end) for end in interval[i]]
            parameters.append(row)
        result: dict[str, Any] = {"parameters": parameters, "status": self.status.value}
        if self.seconds is not None:
            result["seconds"] = self.seconds
        for name in ("method", "model", "diagnostics", "settings"):
            if getattr(self, name):
                result[name] = _plain(getattr(self, name))
        if self.status is not Status.ok:
            result["message"] = self.status.sentence
        return result

    def rows(self, truth: Mapping[str, float] | None = None) -> list[dict[str, str]]:
        """A row of texts for each parameter, by title; what a method does not give is left out.

        >>> Estimate(("a",), np.array([1.0]), np.array([[0.01]])).rows()
        [{'parameter': 'a', 'estimate': '1', 'std': '0.1', '95 % interval': '0.804 to 1.196'}]
        """
        interval, found = self.interval(), []
        for i, name in enumerate(self.names):
            row = {"parameter": name, "estimate": f"{self.mean[i]:.4g}"}
            if self.std is not None:
                row["std"] = f"{self.std[i]:.2g}"
            if interval is not None:
                row["95 % interval"] = f"{interval[i, 0]:.4g} to {interval[i, 1]:.4g}"
            if truth is not None:
                row["truth"] = f"{truth[name]:.4g}" if name in truth else ""
            found.append(row)
        return found

    @property
    def _title(self) -> str:
        return " · ".join(filter(None, (self.model, self.method)))

    def table(self, truth: Mapping[str, float] | None = None) -> "Table":
        """A table for a terminal; with the true values beside, where they are known."""
        from rich.markup import escape
        from rich.table import Table

        table, rows = Table(title=escape(self._title) or None), self.rows(truth)
        for k, header in enumerate(rows[0] if rows else ()):
            table.add_column(header, justify="right" if k else "left")
        for row in rows:
            table.add_row(*map(escape, row.values()))
        return table

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        from html import escape

        rows = self.rows()
        head = "".join(f'<th scope="col">{title}</th>' for title in (rows[0] if rows else ()))
        body = ""
        for row in rows:
            name, *values = (escape(value) for value in row.values())
            cells = "".join(f"<td>{value}</td>" for value in values)
            body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
        trouble = "" if self.status is Status.ok else f"{self.status.value}: {self.status.sentence}"
        return (
            f"<table><caption>{escape(self._title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>" + (f"<p>{escape(trouble)}</p>" if trouble else "")
        )

    def to_arviz(self) -> "arviz.InferenceData":
        """The samples for ArviZ; weighted ones are resampled to equal weights."""
        if self.samples is None and self.posterior is None:
            raise GreybayesError(
                f"{self.method or 'this method'} gives no samples; ArviZ needs some."
            )
        samples = np.asarray(self._drawn if self.samples is None else self.samples, float)
        if self.weights is not None:
            flat, share = samples.reshape(-1, len(self.names)), np.ravel(self.weights)
            steps = (np.arange(len(flat)) + 0.5) / len(flat)
            # Systematic, without randomness: the same estimate gives the same picture.
            chosen = np.searchsorted(np.cumsum(share) / share.sum(), steps)
            samples = flat[np.minimum(chosen, len(flat) - 1)]
        if samples.ndim == 2:
            samples = samples[None]
        columns = {name: samples[..., i] for i, name in enumerate(self.names)}
        return load_arviz().from_dict(columns)


def truth_of(record: Record, names: tuple[str, ...]) -> dict[str, float] | None:
    """The parameters that made a record, by name, where they are known.

    >>> truth_of(Record(y=[0.0], theta={"1": 0.5}), ("gain",))
    {'gain': 0.5}
    """
    if record.theta is None:
        return None
    # A set from elsewhere may number its parameters instead of naming them.
    if set(record.theta) == {str(i + 1) for i in range(len(names))}:
        return dict(zip(names, record.theta.values(), strict=True))
    return dict(record.theta)


def _check_weights(samples: np.ndarray | None, weights: np.ndarray) -> None:
    if samples is None or weights.shape != samples.shape[:-1]:
        raise GreybayesError("there must be as many weights as samples.")
    if not (np.all(weights >= 0) and weights.sum() > 0):
        raise GreybayesError("weights must be non-negative, and not all zero.")


def _plain(value: Any) -> Any:
    """NumPy out of nested mappings and lists, so that JSON takes them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # An array or number of NumPy or JAX.
        return value.tolist()
    return value
