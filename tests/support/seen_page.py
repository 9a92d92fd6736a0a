"""What a page of HTML has, as a reader finds it; and that it is well formed and brings nothing of its own."""

from __future__ import annotations

from html.parser import HTMLParser

from typing_extensions import override

#: Elements that are never closed.
VOID = {"meta", "input"}


class SeenPage(HTMLParser):
    """The page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.buttons: list[dict[str, str | None]] = []
        self._pieces: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._open += [] if tag in VOID else [tag]
        found = dict(attrs)
        assert not {name for name in found if name.startswith("on") or name in {"src", "style"}}
        if "id" in found:
            self.ids.append(found["id"] or "")
        if "href" in found:
            self.links.append(found["href"] or "")
        if tag == "button" and "data-path" in found:
            self.buttons.append(found)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in {"script", "style"}:
            self._pieces.append(data)

    @property
    def text(self) -> str:
        """Its texts, a blank between those of two elements."""
        return "".join(f" {piece}" for piece in self._pieces)

    @property
    def run_together(self) -> str:
        """Its texts as they stand beside each other."""
        return "".join(self._pieces)
