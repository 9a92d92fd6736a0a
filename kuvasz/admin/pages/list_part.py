"""A long list, a part at a time, and what looks for some of it. Pure."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from kuvasz.admin.pages.markup import Markup, element, escaped, link

T = TypeVar("T")

#: Rows of a page.
SIZE: Final = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListSelection:
    """What somebody wants to see of a list."""

    text: str = ""  #: names with it in them, in whatever case; empty: all
    number: int = 1  #: of the part, from 1 on
    names: tuple[str, str] = ("q", "page")  #: of the parameters that say so
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: what else the page is asked for with

    def has(self, *names: str | None) -> bool:
        """Whether one of the names is meant."""
        return not self.text or any(self.text.casefold() in (name or "").casefold() for name in names)


class ListPart(Generic[T]):
    """The part of a list.

    Args:
        path: The path of the page that it is on.
        found: All that is wanted, in its order.
        wanted: By what, and which part.
    """

    def __init__(self, path: str, found: Sequence[T], wanted: ListSelection) -> None:
        self._path = path
        self._wanted = wanted
        self._parts = max(1, -(-len(found) // SIZE))
        self.number = min(max(1, wanted.number), self._parts)
        self.shown = found[(self.number - 1) * SIZE : self.number * SIZE]
        self._count = len(found)

    def bar(self, what: str) -> Markup:
        """Return what looks for some of it, and leads to other parts; nothing where there is little to look for."""
        if self._parts == 1 and not self._wanted.text and self._count < SIZE // 10:
            return Markup()
        return element("div", self._search(what), self._ways(what), class_="tools")

    def _search(self, what: str) -> Markup:
        name, text = self._wanted.names[0], escaped(self._wanted.text)
        typed = element("label", f"find {what} ", Markup(f'<input name="{name}" type="search" value="{text}">'))
        others = [
            Markup(f'<input type="hidden" name="{escaped(key)}" value="{escaped(value)}">')
            for key, value in self._wanted.others.items()
        ]
        return element(
            "form", typed, *others, element("button", "find", type="submit"), method="get", action=self._path,
            role="search", aria_label=what,
        )  # fmt: skip

    def _ways(self, what: str) -> Markup:
        begin = (self.number - 1) * SIZE
        told = f"{begin + 1 if self._count else 0:,} to {begin + len(self.shown):,} of {self._count:,}"
        steps = [
            link(self._to(number), name, rel=rel)
            for number, name, rel in ((self.number - 1, "earlier", "prev"), (self.number + 1, "later", "next"))
            if 1 <= number <= self._parts
        ]
        return element(
            "nav", element("span", told, class_="quiet"), *steps, aria_label=f"parts of the list of {what}"
        )

    def _to(self, number: int) -> str:
        text, place = self._wanted.names
        query = {text: self._wanted.text, place: number, **self._wanted.others}
        return f"{self._path}?{urllib.parse.urlencode(query)}"


__all__ = ["SIZE", "ListPart", "ListSelection"]
