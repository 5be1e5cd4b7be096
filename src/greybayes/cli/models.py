"""Commands about models: `models`, `show`."""

import inspect
import sys
from typing import TYPE_CHECKING, Any

import typer

from greybayes import zoo
from greybayes.cli.base import Json, ModelName, app, load_model, print_json, print_table

if TYPE_CHECKING:
    from greybayes.model import Model


@app.command(epilog="Example: greybayes models")
def models(as_json: Json = False) -> None:
    """List the built-in models."""
    entries = zoo.catalogue()
    if as_json:
        return print_json(entries)
    rows = [(e["name"], e["summary"], ", ".join(map(_name, e["parameters"]))) for e in entries]
    print_table(("model", "what it is", "unknown parameters"), rows)


@app.command(epilog="Example: greybayes show growth2")
def show(model: ModelName, as_json: Json = False) -> None:
    """Show a model: its equations, parameters, signals and defaults."""
    facts = {"name": model, **model_facts(load_model(model))}
    if as_json:
        return print_json(facts)
    typer.echo(facts["doc"])
    rows = [
        (_name(p), p.get("prior", f"fixed at {p.get('value')}"), p["unit"], p["doc"])
        for p in facts["parameters"]
    ]
    print_table(("parameter", "prior", "unit", "what it is"), rows)
    kinds = ("state", "input", "output")
    rows = [(kind, s["name"], s["unit"]) for kind in kinds for s in facts[f"{kind}s"]]
    print_table(("signal", "name", "unit"), rows)
    rows = [(f"{method} has", kind) for method, kind in facts["noise"].items()]
    rows += [(key, str(facts[key])) for key in ("dt", "n_steps", "input_delay", "design")]
    print_table(("property", "value"), rows)


def model_facts(model: "Model") -> dict[str, Any]:
    """What `show` says of a model, as plain values."""
    from greybayes.prior import describe

    def parameter_facts(name: str, each: Any) -> dict[str, Any]:
        free = name in model.prior.parameters
        known = {"prior": describe(each.prior)} if free else {"value": each.value.tolist()}
        labels = {"unit": each.unit, "doc": each.doc}
        return {"name": name, **known, "shape": list(each.shape), **labels}

    def signal_facts(names: tuple[str, ...]) -> list[dict[str, str]]:
        return [{"name": name, "unit": model.units.get(name, "")} for name in names]

    cls, kinds = type(model), model.structure
    docs = [cls.__doc__ or "", sys.modules[cls.__module__].__doc__ or ""]
    # A dataclass without a docstring gets its signature as one: of no use to a reader.
    docs = [inspect.cleandoc(doc) for doc in docs if not doc.startswith(f"{cls.__name__}(")]
    return {
        "doc": "\n\n".join(filter(None, docs)) or cls.__name__,
        "parameters": [parameter_facts(*item) for item in model.parameters.items()],
        **{kind: signal_facts(getattr(model, kind)) for kind in ("states", "inputs", "outputs")},
        "noise": {m: getattr(kinds, m).value for m in ("initial", "transition", "observation")},
        **{field: getattr(model, field) for field in ("dt", "n_steps", "input_delay")},
        "design": str(model.design) if model.design else None,
    }


def _name(parameter: dict[str, Any]) -> str:
    return parameter["name"] + "".join(f"[{size}]" for size in parameter["shape"])
