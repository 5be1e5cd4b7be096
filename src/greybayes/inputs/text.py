"""Designs by name: from what `to_dict` wrote, and from what a user typed."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from greybayes.errors import InputError, nearest
from greybayes.inputs.design import Design, Signal, Stack
from greybayes.inputs.fields import short
from greybayes.inputs.levels import PRBS, Steps, WhiteNoise
from greybayes.inputs.sines import Chirp, Cosine, Multisine

DESIGNS: dict[str, type[Design]] = {
    each.name: each for each in (Cosine, PRBS, Multisine, Chirp, Steps, WhiteNoise, Signal, Stack)
}


def from_dict(d: Mapping[str, Any]) -> Design:
    """The design that `to_dict` wrote. Runs no code from `d`: names are looked up in `DESIGNS`.

    >>> from_dict({"design": "cosine", "omega": [0.5, 2.0]}).is_random
    True
    """
    if not isinstance(d, Mapping) or not isinstance(d.get("design"), str):
        raise InputError(f"{short(d)} is no input design; a field design is expected.")
    design = _named(d["design"])
    values = {field: value for field, value in d.items() if field != "design"}
    _refuse_unknown(design, values)
    for field in dataclasses.fields(design):
        if field.default is dataclasses.MISSING and field.name not in values:
            raise InputError(f"{design.name} lacks its field {field.name}.")
    if design is Stack:
        if not isinstance(values["designs"], list | tuple):
            raise InputError(f"stack: designs is {short(values['designs'])}; a list is expected.")
        return Stack(*map(from_dict, values["designs"]))
    return design(**values)


def parse(text: str) -> Design:
    """A design from text, `name:field=value,...`; `low..high` is a pair, `/` the next input.

    >>> parse("prbs:amplitude=1.5,hold=5")
    PRBS(amplitude=1.5, hold=5, offset=0.0, order=None)
    >>> parse("cosine:omega=0.5..2 / steps").n_inputs
    2
    """
    if "/" in text:
        return Stack(*map(parse, text.split("/")))
    name, _, rest = text.partition(":")
    design = _named(name.strip().lower().replace("-", "_"))
    if design in (Signal, Stack):
        raise InputError(
            f"{design.name} cannot be typed; pass samples as a record, channels as prbs/cosine."
        )
    values: dict[str, Any] = {}
    for item in rest.split(",") if rest.strip() else ():
        field, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value or field in values:
            fault = "comes twice" if field in values else "is not of the form field=value"
            raise InputError(f"{design.name}: {item.strip()!r} {fault}; {_field_list(design)}.")
        values[field] = _parsed(value)
    _refuse_unknown(design, values)
    return design(**values)


def _parsed(text: str) -> Any:
    low, dots, high = text.partition("..")
    if dots:
        return (_parsed(low), _parsed(high))
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def _named(name: str) -> type[Design]:
    if name not in DESIGNS:
        raise InputError(f"no input design is called {short(name)}; {nearest(name, DESIGNS)}")
    return DESIGNS[name]


def _field_list(design: type[Design]) -> str:
    return "its fields are " + ", ".join(field.name for field in dataclasses.fields(design))


def _refuse_unknown(design: type[Design], values: Mapping[str, Any]) -> None:
    names = [field.name for field in dataclasses.fields(design)]
    for name in values:
        if name not in names:
            raise InputError(
                f"{design.name} has no field {short(name)}, {_field_list(design)}; "
                f"{nearest(str(name), names)}"
            )
