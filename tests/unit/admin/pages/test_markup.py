"""Texts of others on a page."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from kuvasz.admin.pages import markup
from kuvasz.admin.pages.markup import Markup, button, element, escaped, joined, link, table, tiles
from tests.support.seen_page import SeenPage

HOSTILE = "<script>alert('1')</script>\"&"


def test_a_text_is_escaped_once_wherever_it_stands() -> None:
    inner = element("b", HOSTILE, title=HOSTILE)
    assert escaped(inner) is inner
    assert "<script" not in joined([inner, element("p", inner), table(HOSTILE, [HOSTILE], [[HOSTILE]], frozenset())])
    seen = SeenPage(joined([inner, tiles([(HOSTILE, HOSTILE)]), link(HOSTILE, HOSTILE)]))
    assert seen.text.split() == [*HOSTILE.split()] * 4
    assert seen.links == [HOSTILE]


def test_attributes_may_be_left_out_or_have_no_value() -> None:
    assert element("a", class_="x", data_body="{}", hidden=True, title=None, open=False) == Markup(
        '<a class="x" data-body="{}" hidden></a>'
    )


def test_a_button_says_what_it_asks_for() -> None:
    (seen,) = SeenPage(button("pause", "pause items", '{"table": "items"}')).buttons
    assert (seen["data-path"], seen["data-body"], "hidden" in seen) == ("/api/pause", '{"table": "items"}', True)


@pytest.mark.parametrize("part", ["style", "script"])
def test_nothing_counts_but_what_is_named_by_its_hash(part: str) -> None:
    page = markup.document("a page", "text")
    SeenPage(page)
    (text,) = re.findall(rf"<{part}>(.*?)</{part}>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert f"{part}-src 'sha256-{digest}'" in markup.HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in markup.HEADERS["Content-Security-Policy"]
