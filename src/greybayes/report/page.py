"""The page: findings in the order in which an engineer reads them, as one HTML file.

Nothing is fetched: style, script and figures are inside, and the page forbids itself any request.
Without JavaScript it shows the same; the script only zooms.
"""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from greybayes import __version__
from greybayes.report.findings import Findings
from greybayes.report.html import Html, element, joined, table
from greybayes.report.sections import Figures, sections
from greybayes.report.verdict import verdict

MAX_DETAILED = 6
"""Records that have a section of their own; of more, all are in the table above."""
MAX_BYTES = 3_000_000
# Points of all lines of time together, and of each at most and at least.
_POINTS, _MOST, _LEAST = 60_000, 12_000, 400


def page(findings: Sequence[Findings]) -> str:
    """The whole page as text, of less than `MAX_BYTES`: else with fewer points, or less detail."""
    text = ""
    for n_detailed, n_points in (
        (MAX_DETAILED, _POINTS),
        (MAX_DETAILED, _POINTS // 4),
        (MAX_DETAILED, 0),
        (1, 0),
    ):
        text = _page(findings, n_detailed, n_points)
        if len(text.encode()) < MAX_BYTES:
            break
    return text


def _page(findings: Sequence[Findings], n_detailed: int, n_points: int) -> str:
    shown = findings[:n_detailed]
    figures = Figures(_max_points(shown, n_points))
    several = len(findings) > 1
    body = [_head(findings)]
    if several:
        body.append(_overview(findings, n_detailed))
    for k, found in enumerate(shown):
        title = element("h2", found.record.name or f"Record {k + 1}") if several else ""
        body.append(element("article", title, *sections(found, figures), id=f"record-{k + 1}"))
    return document(_title(findings), joined(body))


def _max_points(findings: Sequence[Findings], n_points: int) -> int:
    """How many points each line of time may have."""
    n_lines = sum(
        (len(found.validation) + 1) * (4 * len(found.record.outputs) + len(found.record.inputs))
        + len(found.record.outputs)
        for found in findings
    )
    return int(min(_MOST, max(_LEAST, n_points // max(n_lines, 1))))


def _title(findings: Sequence[Findings]) -> str:
    first = findings[0]
    what = first.record.name if len(findings) == 1 else f"{len(findings)} records"
    # Of a user's own model, plant.py:Plant, the class.
    name = str(first.provenance.get("model") or type(first.model).__name__).rpartition(":")[2]
    late = first.model.input_delay
    delay = f" with an input delay of {late} sample{'s' * (late > 1)}" if late else ""
    return f"{name}{delay}: {what or 'a record'}"


def _head(findings: Sequence[Findings]) -> Html:
    first = findings[0]
    method = first.estimate.method or "an estimate"
    made = first.provenance.get("date", "")
    facts = f"Estimated by {method}, greybayes {__version__}" + (f", {made}" if made else "")
    return element("header", element("h1", _title(findings)), element("p", facts, class_="muted"))


def _overview(findings: Sequence[Findings], n_detailed: int) -> Html:
    """All records in one table, with a link to those that have a section."""
    names = findings[0].estimate.names
    rows = []
    for k, found in enumerate(findings):
        name = found.record.name or f"Record {k + 1}"
        label = element("a", name, href=f"#record-{k + 1}") if k < n_detailed else name
        means = [f"{value:.4g}" for value in found.estimate.mean]
        rows.append([label, verdict(found).headline, *means])
    first = f"first {n_detailed} have a section" if n_detailed > 1 else "first has a section"
    return joined(
        [
            table("All records", ("record", "verdict", *names), rows),
            element("p", f"The {first} of their own below.", class_="muted")
            if len(findings) > n_detailed
            else "",
        ]
    )


def document(title: str, body: Html) -> str:
    """A page that needs nothing else, with our style and script."""
    here = Path(__file__).parent
    style = here.joinpath("page.css").read_text(encoding="utf-8")
    script = here.joinpath("zoom.js").read_text(encoding="utf-8")
    # Of scripts the page runs this one and no other, whatever stands in its texts.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="greybayes {__version__}">\n'
        f"{element('title', title)}\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<main>{body}</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )
