"""Write the catalogue of built-in models anew: `python -m greybayes.zoo`."""

import json

from greybayes.prior import Parameter, describe
from greybayes.zoo import CATALOGUE, MODELS, get_model


def entries() -> list[dict]:
    """What the catalogue says of each model, from the models themselves."""
    listed = []
    for name in MODELS:
        model = get_model(name)
        parameters = [
            {
                "name": key,
                "prior": describe(parameter.prior),
                "shape": list(parameter.shape),
                "unit": parameter.unit,
                "doc": parameter.doc,
            }
            for key, parameter in model.parameters.items()
            if isinstance(parameter, Parameter)
        ]
        listed.append(
            {
                "name": name,
                "summary": (type(model).__doc__ or "").splitlines()[0],
                "parameters": parameters,
                "states": list(model.states),
                "inputs": list(model.inputs),
                "outputs": list(model.outputs),
            }
        )
    return listed


if __name__ == "__main__":
    CATALOGUE.write_text(json.dumps(entries(), indent=2) + "\n")
