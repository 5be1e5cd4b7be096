"""What `make demo` runs: estimate a record, make the answer exact, then train one yourself."""

from pathlib import Path

from rich.console import Console

import greybayes as gb
from greybayes.plots import plot_records

FOLDER = Path("demo")
TRUTH = {"theta2": 0.7, "theta6": 1.0, "theta7": 0.1, "theta8": 0.1}


def main() -> None:
    """Simulate `growth2` at the paper's true parameters, estimate them, train for a minute."""
    gb.configure()
    console = Console()
    FOLDER.mkdir(exist_ok=True)
    record = gb.simulate("growth2", TRUTH, key=1)[0]
    gb.write_records(FOLDER / "growth2.csv", [record])
    plot_records([record]).savefig(FOLDER / "growth2.png", dpi=150)
    console.print(f"Simulated [bold]growth2[/bold] for {record.n_steps} steps at known parameters.")
    console.print(f"The record is in {FOLDER / 'growth2.csv'}, its picture in demo/growth2.png.\n")

    pretrained = gb.load("growth2")
    fast = pretrained.estimate(record)
    console.print("The estimate of the pretrained network, beside the truth:")
    console.print(fast.table(TRUTH))
    console.print(f"Can the model have made this record? p = {fast.diagnostics['misfit_p']:.2f}")

    with console.status("Correcting it with the likelihood ..."):
        exact = gb.refine(pretrained, record)
    told = exact.diagnostics
    console.print("\nThe same, corrected with the likelihood until it is exact:")
    console.print(exact.table(TRUTH))
    console.print(f"{told['ess']:.0f} effective draws of {told['n_draws']} ({told['rung']}).")

    with console.status("Training a new estimator for one minute ..."):
        trained = gb.train("growth2", minutes=1, seed=2)
    trained.save(FOLDER / "growth2.estimator")
    console.print("\nThe estimate of a network trained for one minute:")
    console.print(trained.estimate(record).table(TRUTH))
    for name, estimator in (("pretrained", pretrained), ("one minute", trained)):
        risk = gb.bayes_risk(estimator, n_draws=4000)
        console.print(f"Bayes risk, {name}: {risk.mean:.3f} ± {risk.standard_error:.3f} (prior: 1)")
    console.print(
        "\nNext: [bold]greybayes estimate growth2 demo/growth2.csv[/bold], or write your own model "
        "in twelve lines: docs/add-a-model.md."
    )


if __name__ == "__main__":
    main()
