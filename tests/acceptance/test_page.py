"""The pages in a real browser: at three widths, light and dark, with few and many sources, and by the keyboard."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin.observer import Observer, Snapshot
from kuvasz.admin.pages.lag_history import LagHistory
from kuvasz.admin.report.report import RunningReport
from tests.support import browser, fleets
from tests.support.admin_world import AdminWorld
from tests.support.browser import BrowserPage, browser_page
from tests.support.readable import AUDIT
from tests.support.shown_columns import have_columns
from tests.support.snapshots import NOW

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="no browser here (Debian: apt install chromium)")

#: Where pictures go that are looked at; PICTURES= keeps them.
PICTURES = os.environ.get("PICTURES")

#: The pictures that the documentation shows, and of what.
KEPT = Path(__file__).parents[2] / "docs" / "images"
DOCUMENTED = {"fleet": "/", "source": "/source/shop_ap", "table": "/table/shop.items?source=shop_eu"}

WIDTHS = (390, 900, 1500)

#: From a request for a page to the end of the answer.
_ANSWERED_MS = "(one => one.responseEnd - one.requestStart)(performance.getEntriesByType('navigation')[0])"

#: Of links: to sources and tables.
NAMED = ".filter(one => /[/](source|table)[/]/.test(one))"


async def shown(page: BrowserPage, url: str, name: str, folder: Path) -> None:
    """Look at a page in all ways, and have everything that is wrong with it told."""
    for width in WIDTHS:
        for is_dark in (False, True):
            await page.look(width, is_dark=is_dark)
            await page.go(url)
            assert await page.run(AUDIT) == [], (url, width, is_dark)
            await page.picture(folder / f"{name}-{width}{'-dark' if is_dark else ''}.png")


def world_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Snapshot) -> AdminWorld:
    """Return a server that shows a moment."""
    rates = {one.name: 40.0 + at % 900 for at, one in enumerate(moment.view.sources)}
    monkeypatch.setattr(Observer, "snapshot", lambda _: moment)
    monkeypatch.setattr(LagHistory, "of", lambda *_: fleets.lags())
    monkeypatch.setattr(LagHistory, "rates", lambda _: rates)
    monkeypatch.setattr(RunningReport, "events_of", lambda *_: fleets.events())
    world = AdminWorld(tmp_path)
    have_columns(world.app)
    return world


def browse(world: AdminWorld, body: Callable[[BrowserPage, str], Awaitable[Any]]) -> Any:
    """Have a browser ask a server; return what comes of it, if the page told no error."""

    async def look(_: aiohttp.ClientSession, url: str) -> Any:
        async with browser_page() as page:
            found = await body(page, url)
            assert page.errors == []
            return found

    return world.live(look)


@pytest.mark.parametrize("made", [fleets.few, fleets.many])
def test_the_pages_fit_and_are_readable_whatever_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[], Snapshot]
) -> None:
    moment = made()
    number = len(moment.view.sources)
    world = world_of(tmp_path, monkeypatch, moment)
    folder = Path(PICTURES) if PICTURES and PICTURES != "docs" else tmp_path

    async def look(page: BrowserPage, url: str) -> None:
        source, table = moment.view.sources[0].name, "shop.items"
        for name, path in {
            "fleet": "/", "source": f"/source/{source}", "table": f"/table/{table}?source={source}",
            "question": f"/do/resync?table={table}&sid={source}",
        }.items():  # fmt: skip
            await shown(page, f"{url}{path}", f"{name}-{number}", folder)

    browse(world, look)


def test_the_pictures_of_the_documentation_are_of_these_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make pictures` makes them anew."""
    world = world_of(tmp_path, monkeypatch, fleets.few())
    folder = KEPT if PICTURES == "docs" else tmp_path

    async def take(page: BrowserPage, url: str) -> None:
        await page.look(1200)
        for name, path in DOCUMENTED.items():
            await page.go(url + path)
            await page.picture(folder / f"{name}.png")

    browse(world, take)
    for name in DOCUMENTED:
        assert (KEPT / f"{name}.png").read_bytes()[:24] == (folder / f"{name}.png").read_bytes()[:24], "their sizes"


def test_lists_are_looked_through_and_leafed_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(page: BrowserPage, url: str) -> None:
        await page.go(f"{url}/")
        await page.run("document.querySelector('input[name=q]').focus()")
        await page.type("shop_19")
        await page.press("Enter")
        await page.until("location.search.includes('q=shop_19') && document.body.innerText.includes('of 100')")
        await page.go(f"{url}/")
        await page.run("document.querySelector('nav a[rel=next]').focus()")
        await page.press("Enter")
        await page.until(
            "location.search.includes('page=2') && document.body.innerText.includes('101 to 200 of 2,000')"
        )

    browse(world_of(tmp_path, monkeypatch, fleets.many()), find)


@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no script"])
def test_a_table_is_paused_by_the_keyboard_alone(tmp_path: Path, has_script: bool) -> None:
    world = AdminWorld(tmp_path)

    async def pause(page: BrowserPage, url: str) -> tuple[str, str]:
        await page.have_scripts(has_script)
        token = await asyncio.to_thread(world.stored.address.find)
        assert token is not None
        await page.go(f"{url}/")
        await page.tab_to("shop_eu")
        await page.press("Enter")
        await page.until("location.pathname === '/source/shop_eu' && document.readyState === 'complete'")
        await page.tab_to("pause shop.items of shop_eu")
        await page.press("Enter")
        await page.until("location.pathname === '/do/pause' && document.readyState === 'complete'")
        await page.tab_to("token")
        await page.type(token.token)
        await page.press("Enter")
        await page.until("location.pathname === '/api/pause' && document.readyState === 'complete'")
        said = await page.run("document.querySelector('main').innerText")
        await page.go(f"{url}/do/resync?table=shop.items&sid=shop_eu")
        return said, await page.run("document.getElementById('token').value === '' ? 'empty' : 'kept'")

    said, kept = browse(world, pause)
    assert "done" in said
    assert "shop.items" in said
    assert world.commands == [("pause", "shop.items")]
    assert kept == ("kept" if has_script else "empty")


def test_a_token_that_is_wrong_is_not_kept(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path)

    async def ask(page: BrowserPage, url: str) -> None:
        await page.go(f"{url}/do/pause?table=shop.items&sid=shop_eu")
        await page.tab_to("token")
        await page.type("this is no token")
        await page.press("Enter")
        await page.until("location.pathname === '/api/pause' && document.readyState === 'complete'")
        assert "the token is missing or wrong" in await page.run("document.body.innerText")
        assert await page.run(AUDIT) == []
        page.errors.clear()  # the browser tells of each 401
        await page.go(f"{url}/do/pause?table=shop.items&sid=shop_eu")
        assert await page.run("document.getElementById('token').value") == ""

    browse(world, ask)
    assert world.commands == []


def test_what_is_shown_is_exchanged_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [fleets.few()]
    world = AdminWorld(tmp_path)
    monkeypatch.setattr(Observer, "snapshot", lambda _: moments[-1])

    async def wait(page: BrowserPage, url: str) -> None:
        await page.go(f"{url}/")
        await page.tab_to("shop_eu")
        await page.run("document.querySelector('h2').dataset.old = 'yes'")
        moments.append(dataclasses.replace(moments[0], now=NOW + 61))
        await asyncio.sleep(1.1)  # a page is as good as new for a second
        await page.run("renew()")
        await page.until("document.getElementById('at').textContent.endsWith('22:14:21 UTC')")
        assert await page.run("document.querySelector('h2').dataset.old") is None
        assert await page.run("document.activeElement.textContent") == "shop_eu", "who is there stays there"
        await page.run("document.getElementById('live').click()")
        await page.run("document.querySelector('h2').dataset.old = 'yes'")
        await page.run("renew()")
        assert await page.run("document.querySelector('h2').dataset.old") == "yes", "nobody wants it"

    browse(world, wait)


def test_names_of_others_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "<img src=x onerror=document.title='taken'>'\"&<script>document.title='taken'</script>"
    moment = fleets.hostile(hostile)
    world = world_of(tmp_path, monkeypatch, moment)

    async def look(page: BrowserPage, url: str) -> None:
        await page.go(f"{url}/")
        links = await page.run(f"[...document.querySelectorAll('main a')].map(one => one.href){NAMED}")
        assert len(links) == 2
        for link in links:
            await page.go(link)
            assert hostile in await page.run("document.body.innerText")
            actions = await page.run("[...document.querySelectorAll('a.do')].map(one => one.href)")
            await page.go(actions[0])
            assert hostile in await page.run("document.querySelector('h1').innerText")
            assert await page.run("document.title !== 'taken' && document.images.length === 0")

    browse(world, look)


def test_pages_of_5000_sources_are_there_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """Half of the answers: the others may have waited for whoever else works on this machine."""
    took: dict[str, float] = {}

    async def ask(page: BrowserPage, url: str) -> None:
        for path in ("/", "/?page=3", "/?q=shop_19", "/source/shop_0000"):
            answers = []
            for number in range(5):
                await page.go(f"{url}{path}{'&' if '?' in path else '?'}look={number}")
                answers.append(await page.run(_ANSWERED_MS))
            took[path] = statistics.median(answers)

    browse(world_of(tmp_path, monkeypatch, fleets.many(5_000)), ask)
    record_property("answers in ms", {path: round(ms) for path, ms in took.items()})
    assert max(took.values()) < 1_000, took
