"""What pages are made of: elements whose texts are escaped, tables, facts side by side. Pure."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence

from kuvasz.shown.figures import UNKNOWN


class Markup(str):
    """A piece of a page: it is not escaped once more."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Return a value as a page shows it."""
    return value if isinstance(value, Markup) else Markup(html.escape("" if value is None else str(value)))


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; ``class_`` is the attribute class, ``data_body`` is data-body.

    An attribute that is None or False is left out, one that is True has no value.
    """
    given = ""
    for key, value in attributes.items():
        called = key.rstrip("_").replace("_", "-")
        if value is True:
            given += f" {called}"
        elif value is not None and value is not False:
            given += f' {called}="{escaped(str(value))}"'
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Return pieces one after another."""
    return Markup("".join(escaped(part) for part in parts))


def tiles(facts: Iterable[tuple[str, object]]) -> Markup:
    """Return facts with their names, side by side."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *pairs, class_="tiles")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table on a page."""

    name: str
    class_: str | None = None  #: ``number``: set to the right; ``grow``: has what room there is
    is_unseen: bool = False  #: its name is for those alone who have the page read to them


def columns(*names: str, numbers: Iterable[str] = (), grow: str = "", unseen: str = "") -> tuple[TableColumn, ...]:
    """Return columns of these names."""
    apart = set(numbers)
    return tuple(
        TableColumn(
            name=name,
            class_="number" if name in apart else "grow" if name == grow else None,
            is_unseen=name == unseen,
        )
        for name in names
    )


def table(caption: str, head: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table without the columns of which no row says anything.

    Where it is narrow, its rows stand one below the other, each value beside its column's name; the roles say what
    the style would take from it there.
    """
    lines = [tuple(row) for row in rows]
    said = [at for at in range(len(head)) if not lines or any(row[at] and row[at] != UNKNOWN for row in lines)]
    head, lines = [head[at] for at in said], [tuple(row[at] for at in said) for row in lines]
    names = (
        element(
            "th", element("span", one.name, class_="unseen") if one.is_unseen else one.name, class_=one.class_,
            scope="col", role="columnheader",
        )
        for one in head
    )  # fmt: skip
    body = (
        element("tr", *(_cell(one, value) for one, value in zip(head, row, strict=True)), role="row") for row in lines
    )
    whole = element(
        "table", element("thead", element("tr", *names, role="row"), role="rowgroup"),
        element("tbody", *body, role="rowgroup"), role="table", aria_label=caption,
    )  # fmt: skip
    # What is scrolled has to be reached by the keyboard.
    return element("div", whole, class_="wide", tabindex="0", role="group", aria_label=caption)


def _cell(column: TableColumn, value: object) -> Markup:
    classes = [column.class_ or "", "none" if value == UNKNOWN else ""]
    return element(
        "td", value, class_=" ".join(filter(None, classes)) or None, role="cell",
        data_label="" if column.is_unseen else column.name,
    )  # fmt: skip


def link(to: str, shown: object, **attributes: object) -> Markup:
    """Return a link within the server."""
    return element("a", shown, href=to, **attributes)


def small(*parts: object) -> Markup:
    """Return what is said below a fact."""
    return element("small", *parts)


__all__ = ["Markup", "TableColumn", "columns", "element", "escaped", "joined", "link", "small", "table", "tiles"]
