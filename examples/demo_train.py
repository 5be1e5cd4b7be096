"""What `make demo-train` runs: train an estimator for a minute, beside the one that is shipped."""

from demo import FOLDER, TRUTH
from rich.console import Console

import greybayes as gb


def main() -> None:
    """Train for `growth2`, estimate a record, and compare the risks."""
    gb.configure()
    console = Console()
    FOLDER.mkdir(exist_ok=True)
    record = gb.simulate("growth2", TRUTH, key=1)[0]
    with console.status("Training a new estimator for one minute ..."):
        trained = gb.train("growth2", minutes=1, seed=2)
    trained.save(FOLDER / "growth2.estimator")
    console.print("The estimate of a network trained for one minute, beside the truth:")
    console.print(trained.estimate(record).table(TRUTH))
    for name, estimator in (("pretrained", gb.load("growth2")), ("one minute", trained)):
        risk = gb.bayes_risk(estimator, n_draws=4000)
        console.print(f"Bayes risk, {name}: {risk.mean:.3f} ± {risk.standard_error:.3f} (prior: 1)")
    console.print(
        "\nNext: [bold]greybayes estimate demo/growth2.estimator demo/growth2.csv[/bold], or write "
        "your own model in twelve lines: docs/add-a-model.md."
    )


if __name__ == "__main__":
    main()
