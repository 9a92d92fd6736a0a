"""A long list, a part at a time, and what looks for some of it. Pure."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from kuvasz.admin.pages.markup import Markup, element, escaped, joined, link

T = TypeVar("T")

#: Rows of a page.
SIZE: Final = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListSelection:
    """What somebody wants to see of a list."""

    text: str = ""  #: names with it in them, in whatever case; empty: all
    number: int = 1  #: of the part, from 1 on

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
        """Return what looks for some of it, and leads to the other parts."""
        typed = element(
            "label", f"find {what} ", Markup(f'<input name="q" type="search" value="{escaped(self._wanted.text)}">')
        )
        search = element("form", typed, element("button", "find", type="submit"), method="get", action=self._path)
        begin = (self.number - 1) * SIZE
        told = f"{begin + 1 if self._count else 0:,} to {begin + len(self.shown):,} of {self._count:,}"
        steps = [
            link(self._to(number), name)
            for number, name in ((self.number - 1, "earlier"), (self.number + 1, "later"))
            if 1 <= number <= self._parts
        ]
        return joined([search, element("nav", told, *steps, aria_label=f"parts of the list of {what}")])

    def _to(self, number: int) -> str:
        return f"{self._path}?{urllib.parse.urlencode({'q': self._wanted.text, 'page': number})}"


__all__ = ["SIZE", "ListPart", "ListSelection"]
