"""A few words of HTML. Whatever is not `Html` already is escaped: no text of a record is markup."""

import html
from collections.abc import Sequence


class Html(str):
    """Text that is HTML already."""


def markup(value: object) -> Html:
    """A value as HTML.

    >>> markup("a < b"), markup(Html("<b>a</b>"))
    ('a &lt; b', '<b>a</b>')
    """
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """An element. What is None is left out; `class_` is class, `aria_label` is aria-label.

    >>> element("p", "a & b", class_="note", id=None)
    '<p class="note">a &amp; b</p>'
    """
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{told}>{joined(content)}</{tag}>")


def joined(parts: Sequence[object]) -> Html:
    """Several values after each other."""
    return Html("".join(markup(part) for part in parts))


def table(caption: str, titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    """A table whose first column names its rows. Columns of numbers are set to the right.

    >>> "<th scope=\\"row\\">a</th>" in table("Parameters", ("name", "value"), [("a", "1.5")])
    True
    """
    numeric = [all(_is_number(row[k]) for row in rows) for k in range(len(titles))]
    kinds = ["number" if each else None for each in numeric]
    head = [
        element("th", title, scope="col", class_=kind)
        for title, kind in zip(titles, kinds, strict=True)
    ]
    body = []
    for first, *rest in rows:
        cells = [element("th", first, scope="row")]
        cells += [element("td", v, class_=k) for v, k in zip(rest, kinds[1:], strict=True)]
        body.append(element("tr", *cells))
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *body),
    )
    # A wide table scrolls by itself, and a keyboard can reach it.
    return element("div", whole, class_="wide", tabindex=0, role="region", aria_label=caption)


def _is_number(value: object) -> bool:
    words = str(value).replace("to", "").replace("%", "").replace("±", "").split()
    return all(_parses(word) for word in words)


def _parses(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
