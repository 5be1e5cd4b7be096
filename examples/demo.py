"""What `make demo` runs: estimate a record, train, make the answer exact, and write the report."""

from pathlib import Path

from rich.console import Console

import greybayes as gb

FOLDER = Path("demo")
TRUTH = {"theta2": 0.7, "theta6": 1.0, "theta7": 0.1, "theta8": 0.1}


def main() -> None:
    """Simulate `growth2` at the paper's true parameters, estimate them, refine, report."""
    gb.configure()
    console = Console()
    FOLDER.mkdir(exist_ok=True)
    record, fresh = gb.simulate("growth2", TRUTH, count=2, key=1)
    gb.write_records(FOLDER / "growth2.csv", [record])
    console.print(f"Simulated [bold]growth2[/bold] for {record.n_steps} steps at known parameters.")
    console.print(f"The record is in {FOLDER / 'growth2.csv'}.\n")

    pretrained = gb.load("growth2")
    console.print("The estimate of the pretrained network, beside the truth:")
    console.print(pretrained.estimate(record).table(TRUTH))

    train_a_minute(console, record, pretrained)

    with console.status("Correcting the pretrained network's estimate with the likelihood ..."):
        exact = gb.refine(pretrained, record)
    told = exact.diagnostics
    console.print("\nThe pretrained network's, corrected with the likelihood until it is exact:")
    console.print(exact.table(TRUTH))
    console.print(f"{told['ess']:.0f} effective draws of {told['n_draws']} ({told['rung']}).")

    report = FOLDER / "report.html"
    with console.status("Checking it, and writing the report ..."):
        gb.write_report(report, "growth2", record, exact, validation=[fresh])
    console.print(
        "\nThe same from the command line: [bold]greybayes estimate growth2 demo/growth2.csv "
        "--refine --report report.html[/bold]. Or write your own model in a few lines: "
        "docs/add-a-model.md."
    )
    console.print(f"\nOpen the report in a browser: {report.resolve()}", soft_wrap=True)


def train_a_minute(console: Console, record: gb.Record, pretrained: gb.Estimator) -> None:
    """What one minute of training gives, beside the network that is shipped."""
    with console.status("Training a new estimator for one minute ..."):
        trained = gb.train("growth2", minutes=1, seed=2)
    trained.save(FOLDER / "growth2.estimator")
    console.print("\nThe estimate of a network that was trained for one minute just now:")
    console.print(trained.estimate(record).table(TRUTH))
    for name, estimator in (("pretrained", pretrained), ("one minute", trained)):
        risk = gb.bayes_risk(estimator, n_draws=4000)
        console.print(f"Bayes risk, {name}: {risk.mean:.3f} ± {risk.standard_error:.3f} (prior: 1)")


if __name__ == "__main__":
    main()
