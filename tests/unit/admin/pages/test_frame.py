"""What is around every page: what may run and count in it, and colours that can be told apart."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from kuvasz.admin.pages import frame
from tests.support.seen_page import SeenPage


@pytest.mark.parametrize("part", ["style", "script"])
def test_nothing_counts_but_what_is_named_by_its_hash(part: str) -> None:
    page = frame.document("a page", "text")
    SeenPage(page)
    (text,) = re.findall(rf"<{part}>(.*?)</{part}>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = frame.HEADERS["Content-Security-Policy"]
    assert f"{part}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_only_what_changes_comes_again_by_itself() -> None:
    assert 'id="live"' in frame.document("a page", at="as of now")
    assert 'id="live"' not in frame.document("a page")


def test_a_page_says_where_it_is() -> None:
    assert frame.document("the fleet", here="/").count('href="/" aria-current="page"') == 1
    assert "aria-current=" not in frame.document("a source")


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(scheme: int) -> None:
    colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", frame.STYLE.split("@media")[scheme]))
    assert colours.keys() >= {"ground", "raised", "text", "quiet", "link", "bad", "warn", "good"}
    for ground in ("ground", "raised"):
        for name in ("text", "quiet", "link", "bad", "warn", "good"):
            one, other = sorted((luminance(colours[name]), luminance(colours[ground])))
            assert (other + 0.05) / (one + 0.05) >= 4.5, (name, ground)
