"""The pages in a real browser: at three widths, light and dark, with few and with many sources."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin import views
from kuvasz.admin.pages import pages
from kuvasz.errors import SchemaError
from kuvasz.state.tables import State
from tests.support import browser
from tests.support.admin_world import AdminWorld
from tests.support.browser import BrowserPage, browser_page
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="no browser here (Debian: apt install chromium)")

#: Where pictures go that are looked at; PICTURES= keeps them.
PICTURES = os.environ.get("PICTURES")

FITS = "document.documentElement.scrollWidth <= window.innerWidth"
LABELLED = "[...document.querySelectorAll('input')].every(one => one.labels.length === 1)"
NAMED = "[...document.querySelectorAll('button, a')].every(one => one.textContent.trim())"
CONTRASTS = "getComputedStyle(document.body).color !== getComputedStyle(document.documentElement).backgroundColor"


async def shown(page: BrowserPage, url: str, name: str, folder: Path) -> None:
    """Look at a page in all ways."""
    for width in (390, 900, 1500):
        for is_dark in (False, True):
            await page.look(width, is_dark=is_dark)
            await page.go(url)
            assert [await page.run(script) for script in (FITS, LABELLED, NAMED, CONTRASTS)] == [True] * 4, (
                url,
                width,
            )
            assert await page.run("matchMedia('(prefers-color-scheme: dark)').matches") is is_dark
            await page.picture(folder / f"{name}-{width}{'-dark' if is_dark else ''}.png")


GOOD = views.status(snapshot())
BAD = views.status(
    snapshot(
        table={"state": State.ERROR, "error": SchemaError("its column price is a text now", hint="kuvasz retry")}
    )
)


def few() -> dict[str, Any]:
    """A day on which not all is well, of three sources."""
    source = copy.deepcopy(GOOD["sources"][0])
    kept = {"retained_bytes": 3 << 30, "seconds_left": 40_000.0}
    gone = {
        "source": "shop_us", "state": "waiting", "lag_seconds": 840.0, "slot": source["slot"] | kept,
        "error": "source shop_us: the server does not answer within 60 s\nhint: kuvasz reconnects by itself",
    }  # fmt: skip
    failed = copy.deepcopy(BAD["sources"][0]) | {"source": "shop_ap"}
    return GOOD | {"sources": [source, source | gone, failed]}


def many() -> dict[str, Any]:
    """A good day of two thousand sources."""
    one = GOOD["sources"][0]
    return GOOD | {"sources": [copy.deepcopy(one) | {"source": f"shop_{at:04}"} for at in range(2000)]}


@pytest.mark.parametrize("made", [few, many])
def test_the_pages_fit_and_are_named_whatever_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[], dict[str, Any]]
) -> None:
    status = made()
    sources = len(status["sources"])
    monkeypatch.setattr(pages.views, "status", lambda *_: status)
    folder = Path(PICTURES) if PICTURES else tmp_path

    async def look(_: aiohttp.ClientSession, url: str) -> list[str]:
        async with browser_page() as page:
            await shown(page, f"{url}/", f"fleet-{sources}", folder)
            await page.run("document.querySelector('main a[href^=\"/source/\"]').click()")
            await page.until("location.pathname.startsWith('/source/') && document.readyState === 'complete'")
            await page.picture(folder / f"source-{sources}.png")
            await shown(page, f"{url}/table/shop.items", f"table-{sources}", folder)
            if sources > 100:
                await page.go(f"{url}/")
                await page.run("document.querySelector('input[name=q]').value = 'shop_19'")
                await page.run("document.querySelector('input[name=q]').form.requestSubmit()")
                await page.until("location.search === '?q=shop_19' && document.body.innerText.includes('of 100')")
            return page.errors

    assert AdminWorld(tmp_path).live(look) == []


def test_a_button_asks_with_the_token_that_was_typed(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path)

    async def press(_: aiohttp.ClientSession, url: str) -> list[str]:
        async with browser_page() as page:
            await page.go(f"{url}/source/shop_eu")
            assert await page.run("document.querySelectorAll('button[data-path][hidden]').length") == 0
            button = "[...document.querySelectorAll('button[data-path=\"/api/pause\"]')][0]"
            await page.run(f"{button}.click()")
            await page.until("document.getElementById('said').textContent.startsWith('a token is needed')")
            token = await asyncio.to_thread(world.stored.address.find)
            assert token is not None
            await page.run(f"(field => {{ field.value = {token.token!r}; field.dispatchEvent(new Event('change')) }})"
                           "(document.getElementById('token'))")  # fmt: skip
            await page.run(f"{button}.click()")
            await page.until("document.getElementById('said').textContent.startsWith('done: pause')")
            return page.errors

    assert world.live(press) == []
    assert world.commands == [("pause", "shop.items")]
