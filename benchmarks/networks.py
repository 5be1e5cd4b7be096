"""What was tried for the default network: each change alone, beside the default.

    python benchmarks/networks.py growth1
    python benchmarks/networks.py --gated growth1 growth2

Every variant sees the same number of fresh paths; its risk and its seconds say what it is worth.
"""

import argparse
import time
from typing import Any

import greybayes as gb

gb.configure()

from machine import write_result  # noqa: E402

VARIANTS = {
    "default": {},
    "early 2": {"sizes": {"early": 2}},
    "levels 1": {"sizes": {"levels": 1}},
    "depth 2": {"sizes": {"depth": 2}},
    "width 96": {"sizes": {"width": 96}},
    "window 8": {"sizes": {"window": 8}},
    "batch 128": {"batch": 128},
    "adam, rate 1e-3": {"optimiser": "adam", "learning_rate": 1e-3},
    "gru 2 x 40": {"network": "gru"},
}
GATED = {
    "windows 48": {"sizes": {"width": 48}},
    "gated 48": {"network": "gated"},
    "windows 64": {},
    "gated 64": {"network": "gated", "sizes": {"width": 64}},
    "cued 48": {"network": "cued"},
    "cued 64": {"network": "cued", "sizes": {"width": 64}},
}


def measure(
    model: str, variant: str, settings: dict[str, Any], paths: int, seed: int
) -> dict[str, float]:
    """Train one variant; its risk, and what it cost."""
    estimator = gb.train(
        model, steps=paths // settings.get("batch", 64), seed=seed, settings=settings
    )
    risk = gb.bayes_risk(estimator)
    figures = {
        "risk": round(risk.mean, 5),
        "standard_error": round(risk.standard_error, 5),
        "seconds": estimator.header["seconds"],
        "weights": estimator.header["n_weights"],
    }
    print(model, variant, figures, flush=True)
    return figures


def main() -> None:
    """Measure every variant, write results/networks-MODEL.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["growth1"])
    parser.add_argument("--paths", type=int, default=64_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gated", action="store_true", help="Gated networks beside windows.")
    arguments = parser.parse_args()
    table: dict[str, dict[str, Any]] = GATED if arguments.gated else VARIANTS
    for model in arguments.models:
        started = time.perf_counter()
        variants = {
            name: measure(model, name, settings, arguments.paths, arguments.seed)
            for name, settings in table.items()
        }
        figures = {"model": model, "paths": arguments.paths, "variants": variants}
        name = f"networks-{model}{'-gated' if arguments.gated else ''}"
        write_result(name, arguments.seed, started, figures)


if __name__ == "__main__":
    main()
