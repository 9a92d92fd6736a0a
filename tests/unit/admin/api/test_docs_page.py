from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from typing_extensions import override

from kuvasz.admin.api import docs_page
from kuvasz.admin.api.route import Body, BodyField, FieldKind, Route, RouteAnswer
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.api.shapes import SHAPES

PAGE = docs_page.page(ROUTES)

#: Elements that are never closed.
VOID = {"meta"}


class Seen(HTMLParser):
    """What a page has: texts, anchors, links, and whether its elements are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._open += [] if tag in VOID else [tag]
        for name, value in attrs:
            assert name not in {"src", "style"}
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_every_route_and_every_shape() -> None:
    seen = Seen(PAGE)
    assert seen.ids == [*(route.name for route in ROUTES), *SHAPES]
    for route in ROUTES:
        assert route.title in seen.text
        for answer in route.answers.values():
            assert answer.about.replace("`", "") in seen.text


def test_nothing_of_the_page_is_from_outside() -> None:
    seen = Seen(PAGE)
    assert seen.tags.isdisjoint({"script", "link", "img", "iframe", "form", "object"})
    assert all(link == "/api/openapi.json" or link.removeprefix("#") in seen.ids for link in seen.links)
    assert "url(" not in PAGE
    assert "@import" not in PAGE


def test_a_browser_takes_the_style_and_nothing_else() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = docs_page.HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert f"style-src 'sha256-{digest}'" in policy


def test_texts_are_no_markup() -> None:
    route = Route(
        name="x", method="POST", path="/<x>", summary="<b>", about="<script>",
        answers={200: RouteAnswer(about="<i>", schema={"type": "string"})},
        body=Body(fields=(BodyField(name="<u>", kind=FieldKind.TEXT, about="<s>", example="<a>"),)),
    )  # fmt: skip
    page = docs_page.page([route])
    assert Seen(page).tags == Seen(docs_page.page(ROUTES)).tags
    assert "&lt;script&gt;" in page


def test_an_example_is_a_command() -> None:
    (pause,) = [route for route in ROUTES if route.name == "pause"]
    assert docs_page.example(pause) == (
        'curl -H "Authorization: Bearer $TOKEN" -d \'{"table": "shop.items", "sid": "eu", "database": "shop"}\''
        " http://127.0.0.1:8000/api/pause"
    )
