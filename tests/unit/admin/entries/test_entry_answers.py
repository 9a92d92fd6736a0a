from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin.entries import records
from kuvasz.admin.entries.list_query import ListQuery
from kuvasz.errors import SourceError
from kuvasz.state.tables import State
from tests.support.admin_world import AdminWorld


@pytest.fixture
def world(tmp_path: Path) -> AdminWorld:
    return AdminWorld(tmp_path)


def listed(world: AdminWorld, path: str, **query: str) -> tuple[int, Any, str | None]:
    async def look(client: aiohttp.ClientSession, url: str) -> tuple[int, Any, str | None]:
        address = world.stored.address.find()
        assert address is not None
        headers = {"Authorization": f"Bearer {address.token}"}
        async with client.get(url + path, params=query, headers=headers) as answer:
            return answer.status, await answer.json(), answer.headers.get("X-Total-Count")

    return world.live(look)


def test_the_entries_are_listed_as_react_admin_asks(world: AdminWorld) -> None:
    assert listed(world, "/api/db", sort='["id","ASC"]', range="[0,24]", filter="{}") == (
        200, [{"id": 1, "name": "shop"}], "1",
    )  # fmt: skip
    status, tables, total = listed(world, "/api/tbl", sort='["name","DESC"]', range="[0,0]")
    assert (status, total) == (200, "2")
    assert tables == [
        {
            "id": 2, "db_id": 1, "db_name": "shop", "schema": "public", "name": "others", "type": "clone",
            "target": "others", "partitions_regex": None,
        }
    ]  # fmt: skip
    assert [one["name"] for one in listed(world, "/api/tbl", filter='{"id":[1]}')[1]] == ["items"]
    assert [one["name"] for one in listed(world, "/api/tbl", filter='{"db_id":1,"name":"others"}')[1]] == ["others"]


def test_what_takes_seconds_of_a_fleet_keeps_no_reader_waiting(
    world: AdminWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five thousand groups took two seconds of the loop that sources are read on."""
    threads: list[threading.Thread] = []
    mapped, chosen = records.mapped_tables, ListQuery.chosen

    def noted(known: Any, found: Any) -> Any:
        threads.append(threading.current_thread())
        return mapped(known, found)

    def noted_too(query: ListQuery, entries: Any) -> Any:
        threads.append(threading.current_thread())
        return chosen(query, entries)

    monkeypatch.setattr(records, "mapped_tables", noted)
    monkeypatch.setattr(ListQuery, "chosen", noted_too)
    assert world.ask("/api/map", method="GET")[0] == 200
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_a_list_that_is_asked_for_wrongly_is_told_what_there_is(world: AdminWorld) -> None:
    status, told, total = listed(world, "/api/db", sort='["price","ASC"]')
    assert (status, total) == (400, None)
    assert told == {
        "code": "invalid_request", "error": "the list has no field 'price' to sort by or choose from",
        "hint": "its fields are id, name",
    }  # fmt: skip


@pytest.mark.parametrize("path", ["db", "url", "tbl", "map"])
def test_a_number_that_is_none_and_one_that_nothing_has_differ(world: AdminWorld, path: str) -> None:
    assert world.ask(f"/api/{path}/99", method="GET") == (
        404, {"code": "not_found", "error": f"there is no {path} 99", "hint": f"ask /api/{path} which there are"},
    )  # fmt: skip
    for given in ("dskjhfkdsjfgh", "1.5", "-1", "1e3", "9" * 30):
        status, told = world.ask(f"/api/{path}/{given}", method="GET")
        assert (status, told["code"]) == (400, "invalid_id"), given


def test_a_source_is_shown_without_its_password_and_with_how_it_is(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path, url="postgresql://repl:geheim-123@eu1/shop?sslmode=require")
    (sync,) = world.app.sources
    sync.error = SourceError("no geheim-123 here")
    status, (shown,) = world.ask("/api/url", method="GET", secrets=["geheim-123"])
    assert status == 200
    assert shown == {
        "id": 1, "db_id": 1, "db_name": "shop", "sid": "eu", "url": "postgresql://repl:***@eu1/shop?sslmode=require",
        "up": False, "status": "waiting", "error": "no *** here",
    }  # fmt: skip


def test_a_table_is_shown_with_what_the_map_makes_of_it_though_no_source_answers(world: AdminWorld) -> None:
    world.app.states.set("shop.others", "shop_eu", State.STREAMING)
    _, found, total = listed(world, "/api/map")
    assert total == "2"
    assert [(one["name"], one["replicated"], one["present"], one["source_columns"]) for one in found] == [
        ("items", True, False, {}), ("others", True, True, {}),
    ]  # fmt: skip


def test_sources_are_asked_anew_when_that_is_asked(world: AdminWorld) -> None:
    assert world.ask("/api/map/refresh") == (200, "null")
    assert world.ask("/api/map/refresh", token=False)[0] == 401


def test_nothing_of_it_is_shown_without_a_token(world: AdminWorld) -> None:
    for path in ("db", "url", "tbl", "map", "db/1", "url/1", "tbl/1", "map/1"):
        assert world.ask(f"/api/{path}", method="GET", token=False)[0] == 401
