"""Write the measured figures into the README and the docs.

Between `<!-- NAME:PATH -->` and `<!-- / -->` stands the figure at that path of `results/NAME.json`,
such as `<!-- simulate:paths_per_second.growth2 ours -->`. A format may follow a bar: `|.4f`. An
entry of a list is named by its number, from 0.
`--check` writes nothing and fails where a text is out of date.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"<!-- ([\w-]+):([^|>]+?)(?:\|([^>]+?))? -->.*?<!-- / -->", re.DOTALL)


def figure(name: str, path: str, form: str | None) -> str:
    """One figure, as text."""
    value = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    for part in path.split("."):
        value = value[int(part) if isinstance(value, list) else part]
    return format(value, form or (",.0f" if isinstance(value, float | int) else ""))


def rendered(text: str) -> str:
    """The text with its figures as they were measured last."""

    def fill(match: re.Match[str]) -> str:
        name, path, form = match.groups()
        mark = f"<!-- {name}:{path}{'|' + form if form else ''} -->"
        return f"{mark}{figure(name, path, form)}<!-- / -->"

    return MARK.sub(fill, text)


def main() -> None:
    """Render every text, or check that it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        new = rendered(text)
        if new == text:
            continue
        if check:
            sys.exit(f"{path.name} is out of date: run python benchmarks/render.py")
        path.write_text(new)


if __name__ == "__main__":
    main()
