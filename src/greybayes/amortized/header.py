"""What the header of an estimator file must hold. A file from elsewhere is not trusted to."""

from collections.abc import Mapping
from typing import Any

from greybayes.errors import EstimatorError

OWN = "own"
"""The name of a network that is a user's own module."""
_NUMBER = (int, float)
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "package": str,
    "model": dict,
    "theta": list,
    "outputs": list,
    "inputs": list,
    "dt": _NUMBER,
    "n_steps": int,
    "input": dict,
    "output_error": bool,
    "scaling": dict,
    "settings": dict,
    "architecture": dict,
    "n_weights": int,
    "history": list,
    "share_diverged": _NUMBER,
    "seconds": _NUMBER,
}
_PARTS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "model": {"name": str, "reference": list},
    "input": {"design": str},
    "settings": {"seed": int},
    "architecture": {"network": str, "sizes": dict, "head": str},
    "scaling": dict.fromkeys(("y_offset", "y_scale", "y_heavy", "u_offset", "u_scale"), list),
}
_ENTRY: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "parameter": str,
    "prior": str,
    "bounds": list,
}
# Far more than any network of ours; a size decides how much memory is taken.
_LARGEST_SIZE = 4096
# Samples of a record.
_LONGEST = 10**7

_CHECKPOINT: dict[str, type | tuple[type, ...]] = {
    name: _FIELDS[name] for name in ("model", "theta", "n_steps", "input", "settings", "history")
} | {"preset": str, "seconds": _NUMBER}


def check_checkpoint(header: Mapping[str, Any], path: object) -> None:
    """The same for the header of an unfinished training."""
    found = _wrong(header, _CHECKPOINT)
    if not found:
        found = [f"model.{name}" for name in _wrong(header["model"], _PARTS["model"])]
    if found:
        raise _refusal(path, found[0], "a checkpoint")


def _refusal(path: object, field: str, what: str = "an estimator file") -> EstimatorError:
    return EstimatorError(
        f"{path} is not {what} that this greybayes wrote: {field} is missing or not what it should "
        "be."
    )


def check_header(header: Mapping[str, Any], path: object) -> None:
    """Raise where a field is missing or of another type, or a size is out of all reason."""
    found = _wrong(header, _FIELDS)
    if not found:
        for part, fields in _PARTS.items():
            found += [f"{part}.{name}" for name in _wrong(header[part], fields)]
        for entry in header["theta"]:
            wrong = _wrong(entry, _ENTRY)
            wrong += [] if wrong or _is_line(entry.get("line", [0.0, 1.0])) else ["line"]
            found += [f"theta.{name}" for name in wrong]
        if "before" in header:
            found += [f"before.{name}" for name in _wrong(header["before"], {"seconds": _NUMBER})]
        found += [] if 1 <= header["n_steps"] <= _LONGEST else ["n_steps"]
        lists = {"outputs": str, "inputs": str, "history": dict}
        found += [name for name, kind in lists.items() if not _all(header[name], kind)]
    if not found:
        sizes = header["architecture"]["sizes"]
        found += [
            f"architecture.sizes.{name}"
            for name, size in sizes.items()
            if type(size) is not int or not 1 <= size <= _LARGEST_SIZE
        ]
        scaling = header["scaling"]
        for prefix, names in (("y", "outputs"), ("u", "inputs")):
            found += [
                f"scaling.{name}"
                for name, values in scaling.items()
                if name.startswith(prefix)
                and (
                    len(values) != len(header[names])
                    or not _all(values, bool if name == "y_heavy" else _NUMBER)
                )
            ]
        found += [
            f"scaling.{name}"
            for name in ("y_scale", "u_scale")
            if not all(value > 0 for value in scaling[name])
        ]
        needed = {"posterior": ("dense", "components"), "bounded": ("dense",)}
        found += [
            f"architecture.sizes.{name}"
            for name in needed.get(header["architecture"]["head"], ())
            if name not in sizes
        ]
    if found:
        raise _refusal(path, found[0])


def _wrong(part: Any, fields: Mapping[str, type | tuple[type, ...]]) -> list[str]:
    if not isinstance(part, Mapping):
        return ["an entry"]
    return [name for name, kind in fields.items() if not _is(part.get(name), kind)]


def _all(values: list, kind: type | tuple[type, ...]) -> bool:
    return all(_is(value, kind) for value in values)


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    """For Python, true is a whole number; for a file it is none."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _is_line(value: Any) -> bool:
    """Location and spread of an entry on the line of the posterior."""
    return isinstance(value, list) and len(value) == 2 and _all(value, _NUMBER)
