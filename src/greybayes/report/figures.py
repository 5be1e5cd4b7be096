"""A matplotlib figure as SVG inside a page: small, in the page's colours, ready to be zoomed."""

import html
import io
import re
from typing import TYPE_CHECKING, Any

from greybayes.plots.output import TIME

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The colours of our figures, as names that a page gives a colour to, light or dark.
_THEME = {
    "#000000": "var(--ink)",
    "#ffffff": "var(--paper)",
    "#e6e6e6": "var(--grid)",
    "#808080": "var(--muted)",
    "#c44e00": "var(--model)",
}
_GROUPS = {"xtick_": "ticks-x", "ytick_": "ticks-y", TIME: TIME}
_FONT = re.compile(r"'DejaVu Sans'[^;\"]*")
_NUMBER = re.compile(r"-?\d+\.\d{2,}")


def inline_svg(figure: "Figure", number: int, title: str, description: str) -> str:
    """The figure as an `<svg>` element, with the text that stands for it where it is not seen.

    `number` is that of the figure in its page: names inside two figures must not meet.

    >>> from greybayes.plots import plot_records
    >>> from greybayes.record import Record
    >>> svg = inline_svg(plot_records(Record(y=[1.0, 2.0])), 1, "A record", "It rises.")
    >>> svg.startswith("<svg"), "<title" in svg, "http" in svg
    (True, True, False)
    """
    import matplotlib

    stream = io.BytesIO()
    zooms = any(panel.get_gid() == TIME for panel in figure.axes)
    # Letters stay letters, and names depend on what is drawn: the same page is the same bytes. What
    # is left out of a line that looks the same would be missed when one looks closer.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "greybayes", "path.simplify": not zooms}
    with matplotlib.rc_context(style):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue().decode()
    body = re.sub(r"<!--.*?-->", "", text[text.index("<g id=") :], flags=re.DOTALL)
    # Inside tags alone: what stands between them are names of channels and records.
    digits = 2 if zooms else 1
    body = re.sub(r"<[^>]+>", lambda tag: _page_tag(tag.group(), number, digits), body)
    body = _with_limits(figure, re.sub(r">\s+<", ">\n<", body))
    width, height = (72 * side for side in figure.get_size_inches())
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="f{number}-title f{number}-desc" tabindex="0">'
        f'<title id="f{number}-title">{html.escape(title)}</title>'
        f'<desc id="f{number}-desc">{html.escape(description)}</desc>'
        f"{body}"
    )


def _page_tag(tag: str, number: int, digits: int) -> str:
    """A tag of matplotlib's as the page wants it: its colours, its font, few digits, own names."""
    for colour, name in _THEME.items():
        tag = tag.replace(colour, name)
    tag = _FONT.sub("sans-serif", tag).replace("xlink:href", "href")
    if tag.startswith("<g id="):
        # Of groups, only the ticks and the axes of time are asked for again.
        if tag.endswith("/>"):
            return ""
        kind = next((k for k in _GROUPS if tag.startswith(f'<g id="{k}')), None)
        return f'<g class="{_GROUPS[kind]}">' if kind else "<g>"
    tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>f{number}-", tag)
    if not tag.startswith("<path"):
        return tag
    path = _NUMBER.sub(lambda found: _short(found.group(), digits), tag)
    # After a move, and after a line, points are lines unless it is said otherwise.
    return re.sub(r"\s*\n(?:L )?\s*", " ", path)


def _short(number: str, digits: int) -> str:
    return f"{float(number):.{digits}f}".rstrip("0").rstrip(".")


def _with_limits(figure: "Figure", body: str) -> str:
    """Tell where the axes of time are and what they show: a script zooms by that."""
    width, height = (72 * side for side in figure.get_size_inches())
    panels = [panel for panel in figure.axes if panel.get_gid() == TIME]
    for panel in panels:
        box, (first, last) = panel.get_position(), panel.get_xlim()
        labelled = any(
            label.get_visible() and label.get_text() for label in panel.get_xticklabels()
        )
        values = {
            "first": first,
            "last": last,
            "left": box.x0 * width,
            "right": box.x1 * width,
            "top": (1 - box.y1) * height,
            "bottom": (1 - box.y0) * height,
            "labels": int(labelled),
        }
        told = " ".join(f'data-{name}="{value:.8g}"' for name, value in values.items())
        body = body.replace(f'<g class="{TIME}">', f'<g class="{TIME}" {told}>', 1)
    return body
