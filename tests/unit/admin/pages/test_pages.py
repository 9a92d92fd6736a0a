"""The pages: what they show of good and bad days, of names that want to be markup, and of thousands of sources."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typing_extensions import override

from kuvasz.admin.observer import Snapshot
from kuvasz.admin.pages.fleet_page import fleet_page
from kuvasz.admin.pages.list_part import SIZE, ListSelection
from kuvasz.admin.pages.source_page import source_page
from kuvasz.admin.pages.status_parts import StatusParts
from kuvasz.admin.pages.table_page import table_page
from kuvasz.admin.views import ErrorView
from kuvasz.errors import DecodeError, KuvaszError
from kuvasz.parking.logs import ParkedView
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from tests.support import fleets
from tests.support.admin_world import AdminWorld
from tests.support.seen_page import SeenPage
from tests.support.snapshots import CLOCK, NOW, snapshot

HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_TABLE = f"shop.{HOSTILE}\"'&"

BAD = snapshot(
    source={"error": f"{HOSTILE}\nhint: mend it", "state": "waiting", "retry_at": 5_001.0},
    table={
        "state": State.ERROR, "error": DecodeError(f"no number: {HOSTILE}", hint="look"), "target": HOSTILE_TABLE,
        "table": f"public.{HOSTILE}",
    },
    parked={(HOSTILE_TABLE, "shop_eu"): ParkedView(bytes=7 << 20, since=NOW, first_lsn=1, is_full=True)},
    verdicts={(HOSTILE_TABLE, "shop_eu"): Verdict(at=NOW, lsn="0/1", rows=9, differences=4, left=3)},
)  # fmt: skip


class Counted(ErrorView):
    """Counts of how many tables JSON is made."""

    made = 0

    @override
    def of(self, error: KuvaszError | None) -> dict[str, Any] | None:
        Counted.made += 1
        return ErrorView.of(self, error)


def pages(moment: Snapshot) -> list[SeenPage]:
    parts = StatusParts(moment, ErrorView(is_trusted=True))
    (part,) = parts.sources.values()
    (target,) = parts.targets.values()
    events = [{"at": "2023-11-14T22:13:15.000+00:00", "severity": "error", "text": HOSTILE, "table_name": HOSTILE}]
    made = [
        fleet_page(parts, ListSelection(), ListSelection(), {"shop_eu": 12.0}),
        source_page(parts, part, ListSelection(), [(NOW - 60, 0.0), (NOW, 9.0)], 12.0, events),
        table_page(parts, target, ListSelection(), None, "shop_eu", events),
    ]
    return [SeenPage(page) for page in made]


def test_a_good_day() -> None:
    fleet, source, table = pages(snapshot())
    assert " ready " in fleet.text
    assert "12/s" in fleet.text
    assert [one for one in fleet.links if one.startswith(("/source", "/table"))] == [
        "/source/shop_eu", "/table/shop.items",
    ]  # fmt: skip
    actions = ["/do/pause?table=shop.items&sid=shop_eu", "/do/resync?table=shop.items&sid=shop_eu"]
    whole = ["/do/maintain?targets=shop.items", "/do/verify?table=shop.items"]
    assert [one for one in source.links if one.startswith("/do")] == actions
    assert [one for one in table.links if one.startswith("/do")] == [*whole, *actions]
    assert "1 min 0 s ago at most 9.0 s now" in source.text


def test_a_bad_day_says_what_is_wrong_and_what_to_do() -> None:
    fleet, source, table = pages(BAD)
    for page in (fleet, source, table):
        assert "img" not in page.tags
        assert HOSTILE in page.text
        assert "hint:" in page.text
    assert "keys that differ" in fleet.text
    assert [one for one in source.links if one.startswith("/do/retry?")]
    assert "3 keys differ" in table.text
    assert "7.0 MB since 22:13:20, full" in source.text


def test_a_copy_says_how_far_it_is() -> None:
    _, source, _ = pages(snapshot(table={"state": State.COPYING, "copy_done": 1, "copy_total": 4, "copied_rows": 90,
                                     "copy_began": CLOCK - 30}))  # fmt: skip
    assert "25% 90 rows 3.0/s, 1 min 30 s left" in " ".join(source.text.split())
    assert "progress" in source.tags


def test_the_worst_sources_come_first_and_the_others_on_later_parts() -> None:
    parts = StatusParts(fleets.many(), ErrorView())
    page = SeenPage(fleet_page(parts, ListSelection(), ListSelection(), {}))
    links = [one for one in page.links if one.startswith("/source/")]
    assert (links[0], len(links)) == ("/source/shop_1234", SIZE)
    assert "/?q=&page=2" in page.links
    found = SeenPage(fleet_page(parts, ListSelection(text="SHOP_19"), ListSelection(text="pay"), {}))
    assert "1 to 100 of 100" in found.text
    assert [one for one in found.links if one.startswith("/table/")] == ["/table/shop.payments"]


def test_of_thousands_of_sources_json_is_made_for_what_is_shown_alone() -> None:
    errors = Counted()
    parts = StatusParts(fleets.many(3000), errors)
    Counted.made = 0
    fleet_page(parts, ListSelection(), ListSelection(), {})
    assert Counted.made == 0, "the fleet shows no table of a source"
    target = parts.targets["shop.items"]
    table_page(parts, target, ListSelection(number=7), None, "shop_0000", [])
    assert (len(target.feeds), Counted.made) == (3000, SIZE)


def test_a_page_of_thousands_of_sources_is_no_longer_than_one_of_hundreds() -> None:
    sizes = [
        len(fleet_page(StatusParts(fleets.many(number), ErrorView()), ListSelection(), ListSelection(), {}))
        for number in (200, 3000)
    ]
    assert sizes[1] < 1.1 * sizes[0]


def test_a_state_of_the_log_and_of_slots_left_over_is_told() -> None:
    moment = fleets.many(3)
    facts = {**moment.facts, "shop_old": moment.facts["shop_0000"]}
    view = dataclasses.replace(moment.view, released=("shop_old",))
    stuck = dataclasses.replace(moment, view=view, facts=facts, heard_at=moment.clock - 4000)
    page = SeenPage(fleet_page(StatusParts(stuck, ErrorView()), ListSelection(), ListSelection(), {}))
    assert "shop_old  left the map, and its slot keeps 4.0 kB of WAL" in page.text
    assert "nothing came from any source for 4000 s" in page.text


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/?q=x&page=3&table=i&tables=2", 200), ("/source/shop_eu", 200), ("/table/shop.items", 200),
     ("/table/shop.items?source=nobody", 200), ("/?page=x", 400), ("/?tables=x", 400), ("/source/nobody", 404),
     ("/table/nothing", 404), ("/do/pause?table=shop.items&sid=shop_eu", 200), ("/do/anything", 404)],
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
