"""What `make demo` runs: simulate a record of a built-in model, look at it, see what comes next."""

from pathlib import Path

from rich.console import Console

import greybayes as gb
from greybayes.plots import plot_records

FOLDER = Path("demo")
TRUTH = {"theta2": 0.7, "theta6": 1.0, "theta7": 0.1, "theta8": 0.1}


def main() -> None:
    """Simulate `growth2` at the paper's true parameters and draw the record."""
    gb.configure()
    console = Console()
    record = gb.simulate("growth2", TRUTH, key=1)[0]
    FOLDER.mkdir(exist_ok=True)
    gb.write_records(FOLDER / "growth2.csv", [record])
    plot_records([record]).savefig(FOLDER / "growth2.png", dpi=150)
    console.print(f"Simulated [bold]growth2[/bold] for {record.n_steps} steps at {TRUTH}.")
    console.print(f"The record is in {FOLDER / 'growth2.csv'}, its picture in demo/growth2.png.")
    console.print(
        "\nWhat comes next: [bold]greybayes models[/bold] lists the built-in models, "
        "[bold]greybayes show growth2[/bold] says what this one is, and docs/add-a-model.md shows "
        "how to write your own in twelve lines. Estimation from a record is the next release."
    )


if __name__ == "__main__":
    main()
