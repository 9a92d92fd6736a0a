"""The pages: what they show of good and bad days, of names that want to be markup, and of thousands of sources."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin import views
from kuvasz.admin.pages.fleet_page import fleet_page
from kuvasz.admin.pages.list_part import ListSelection
from kuvasz.admin.pages.source_page import source_page
from kuvasz.admin.pages.table_page import table_page
from kuvasz.admin.views import ErrorView
from kuvasz.errors import DecodeError
from kuvasz.parking.logs import ParkedView
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from tests.support.admin_world import AdminWorld
from tests.support.seen_page import SeenPage
from tests.support.snapshots import NOW, snapshot

HOSTILE = "<img src=x onerror=alert(1)>"

BAD = views.status(
    snapshot(
        source={"error": f"{HOSTILE}\nhint: mend it", "state": "waiting", "retry_at": 5_001.0},
        table={"state": State.ERROR, "error": DecodeError(f"no number: {HOSTILE}", hint="look")},
        parked={("shop.items", "shop_eu"): ParkedView(bytes=7 << 20, since=NOW, first_lsn=1, is_full=True)},
        verdicts={("shop.items", "shop_eu"): Verdict(at=NOW, lsn="0/1", rows=9, differences=4, left=3)},
    ),
    ErrorView(is_trusted=True),
)


def pages(status: dict[str, Any]) -> list[SeenPage]:
    source = status["sources"][0]
    table = source["tables"][0]
    events = [{"at": "2023-11-14T22:13:15.000+00:00", "severity": "error", "text": HOSTILE, "table_name": HOSTILE}]
    made = [
        fleet_page(status, ListSelection()),
        source_page(source, "/source/x", ListSelection(), [(NOW - 60, 0.0), (NOW, 9.0)], events),
        table_page(table["target"], [(source, table)], None, "/table/x", ListSelection()),
    ]
    return [SeenPage(page) for page in made]


def test_a_good_day() -> None:
    status = views.status(snapshot())
    fleet, source, table = pages(status)
    assert "ready" in fleet.text
    assert fleet.links[:2] == ["/source/shop_eu", "/table/shop.items"]
    for page in (source, table):
        assert [one["data-path"] for one in page.buttons if one["data-path"] != "/api/maintain"] == [
            "/api/pause", "/api/resync",
        ]  # fmt: skip
    assert json.loads(source.buttons[0]["data-body"] or "") == {"table": "shop.items", "sid": "shop_eu"}
    assert "lag of the last 1 min 0 s, at most 9.0 s" in source.text


def test_a_bad_day_says_what_is_wrong_and_what_to_do() -> None:
    fleet, source, table = pages(BAD)
    for page in (fleet, source, table):
        assert "img" not in page.tags
        assert HOSTILE in page.text
        assert "hint:" in page.text
    assert "keys that differ" in fleet.text
    assert "/api/retry" in {one["data-path"] for one in source.buttons}
    assert "3 keys differ" in table.text
    assert "7.0 MB since" in source.text


def test_the_worst_sources_come_first_and_the_others_on_later_parts() -> None:
    status = views.status(snapshot())
    (good,) = status["sources"]
    many = [
        copy.deepcopy(good) | {"source": f"shop_{number:04}", "lag_seconds": float(number % 7)}
        for number in range(2000)
    ]
    many[1234] = copy.deepcopy(BAD["sources"][0]) | {"source": "shop_1234", "state": "error"}
    status["sources"] = many
    page = SeenPage(fleet_page(status, ListSelection()))
    assert page.links[1] == "/source/shop_1234", "behind the way to the next part"
    assert page.links[0] == "/?q=&page=2"
    assert len([one for one in page.links if one.startswith("/source/")]) == 100
    found = SeenPage(fleet_page(status, ListSelection(text="SHOP_19")))
    assert "1 to 100 of 100" in found.text


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/?q=x&page=3", 200), ("/source/shop_eu", 200), ("/table/shop.items", 200), ("/?page=x", 400),
     ("/source/nobody", 404), ("/table/nothing", 404)],
)  # fmt: skip
def test_they_are_there_for_anybody(tmp_path: Path, path: str, status: int) -> None:
    world = AdminWorld(tmp_path)

    async def body(client: aiohttp.ClientSession, url: str) -> tuple[int, str, str]:
        async with client.get(f"{url}{path}") as answer:
            return answer.status, answer.content_type, await answer.text()

    code, kind, text = world.live(body)
    assert code == status
    if status == 200:
        assert kind == "text/html"
        SeenPage(text)
    else:
        assert json.loads(text)["error"]
