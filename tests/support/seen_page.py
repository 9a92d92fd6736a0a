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
        self.links: list[str] = []
        self.buttons: list[dict[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._open += [] if tag in VOID else [tag]
        found = dict(attrs)
        assert not {name for name in found if name.startswith("on") or name in {"src", "style"}}
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
            self.text += f" {data}"
