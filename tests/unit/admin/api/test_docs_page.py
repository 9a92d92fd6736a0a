from __future__ import annotations

import base64
import hashlib
import re

from kuvasz.admin.api import docs_page
from kuvasz.admin.api.route import Body, BodyField, FieldKind, Route, RouteAnswer
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.api.shapes import SHAPES
from tests.support.seen_page import SeenPage

PAGE = docs_page.page(ROUTES)


def test_the_page_has_every_route_and_every_shape() -> None:
    seen = SeenPage(PAGE)
    assert seen.ids == [*(route.name for route in ROUTES), *SHAPES]
    for route in ROUTES:
        assert route.title in seen.run_together
        for answer in route.answers.values():
            assert answer.about.replace("`", "") in seen.run_together


def test_nothing_of_the_page_is_from_outside() -> None:
    seen = SeenPage(PAGE)
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
    assert SeenPage(page).tags == SeenPage(docs_page.page(ROUTES)).tags
    assert "&lt;script&gt;" in page


def test_an_example_is_a_command() -> None:
    (pause,) = [route for route in ROUTES if route.name == "pause"]
    assert docs_page.example(pause) == (
        'curl -H "Authorization: Bearer $TOKEN" -d \'{"table": "shop.items", "sid": "eu", "database": "shop"}\''
        " http://127.0.0.1:8000/api/pause"
    )
