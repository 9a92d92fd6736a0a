"""The HTTP server of an application that stands still: who may ask for what, and what is answered."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin import server as admin_server
from kuvasz.admin import views
from kuvasz.admin.server import serve
from kuvasz.admin.views import ErrorView
from kuvasz.errors import ConfigError, LakeError
from kuvasz.events import Event
from kuvasz.ports import Upkeep
from kuvasz.state.tables import State
from tests.support.admin_world import AdminWorld


@pytest.fixture
def world(tmp_path: Path) -> AdminWorld:
    return AdminWorld(tmp_path)


def test_url_and_token_are_left_for_the_verbs_while_it_serves(world: AdminWorld) -> None:
    async def look(_: object, url: str) -> str:
        address = world.stored.address.find()
        assert address is not None
        assert address.url == url
        return address.token

    assert len(world.live(look)) > 30
    assert world.stored.address.find() is None


def test_without_an_address_nothing_is_served(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path, None)

    async def run() -> dict[str, Any]:
        async with serve(world.app, world.stored) as server:
            assert server.url is None
            return await server.observer.show(lambda now: views.status(now, ErrorView()))

    assert asyncio.run(run())["phase"] == "starting", "who is in the process may see it all the same"
    assert world.stored.address.find() is None


def test_an_address_that_is_taken_is_told(world: AdminWorld, tmp_path: Path) -> None:
    async def again(_: object, url: str) -> str:
        (tmp_path / "other").mkdir()
        other = AdminWorld(tmp_path / "other", url.removeprefix("http://"))
        with pytest.raises(ConfigError) as caught:
            async with serve(other.app, other.stored):
                pass
        return caught.value.message

    told = world.live(again)
    assert told.startswith("server.address: cannot listen on 127.0.0.1:")
    assert told.endswith(": address already in use")


def test_who_only_looks_needs_no_token(world: AdminWorld) -> None:
    world.app.phase = "running"
    status, shown = world.ask("/status", token=False, method="GET")
    tables = [table["target"] for source in shown["sources"] for table in source["tables"]]
    assert (status, sorted(tables)) == (200, ["shop.items", "shop.others"])
    assert world.ask("/livez", token=False, method="GET") == (200, {"ok": True})
    status, verdict = world.ask("/readyz", token=False, method="GET")
    assert (status, verdict["ok"]) == (503, False)
    status, metrics = world.ask("/metrics", token=False, method="GET")
    assert (status, "kuvasz_" in metrics) == (200, True)


@pytest.mark.parametrize("path", ["/api/pause", "/api/resume", "/api/retry", "/api/resync", "/api/maintain"])
def test_who_changes_something_needs_it(world: AdminWorld, path: str) -> None:
    status, refused = world.ask(path, token=False, body={"table": "shop.items"})
    assert (status, refused["error"]) == (401, "the token is missing or wrong")
    assert world.commands == []


def test_a_command_goes_to_the_tables_that_it_names(world: AdminWorld) -> None:
    status, done = world.ask("/api/pause", body={"table": "shop.items"})
    assert (status, done) == (202, {"verb": "pause", "tables": [{"source": "shop_eu", "target": "shop.items"}]})
    assert world.commands == [("pause", "shop.items")]


def test_a_table_that_the_map_has_not_is_told_with_those_it_has(world: AdminWorld) -> None:
    status, refused = world.ask("/api/pause", body={"table": "shop.nowhere"})
    assert (status, refused["hint"]) == (404, "it has: shop.items, shop.others")
    assert "shop.nowhere" in refused["error"]


@pytest.mark.parametrize("verb", ["pause", "resync"])
def test_a_table_that_goes_at_that_moment_is_missed_and_no_other(world: AdminWorld, verb: str) -> None:
    (sync,) = world.app.sources
    told = getattr(sync.commands, verb)

    def command(key: str) -> None:
        if key == "shop.items":
            sync.tables.source = dataclasses.replace(
                sync.source, tables=tuple(spec for spec in sync.source.tables if spec.key != key)
            )
            raise KeyError(key)
        told(key)

    setattr(sync.commands, verb, command)
    status, refused = world.ask(f"/api/{verb}", body={"table": "shop.items"})
    assert (status, refused["error"]) == (404, "table 'shop.items' is gone from its source")
    status, done = world.ask(f"/api/{verb}", body={"sid": "eu"})
    assert (status, [one["target"] for one in done["tables"]]) == (202, ["shop.others"])
    assert world.commands == [(verb, "shop.others")]


def test_a_command_that_does_not_fit_is_refused(world: AdminWorld) -> None:
    status, refused = world.ask("/api/resume", body={"table": "shop.items"})
    assert (status, world.commands) == (409, [])
    assert refused["hint"] == "it has not been looked at yet: see `kuvasz status`"
    world.app.states.pause("shop.items", "shop_eu")
    assert world.ask("/api/resume", body={"table": "shop.items"})[0] == 202


@pytest.mark.parametrize("body", ["", "[]", "{", '"pause"'])
def test_what_is_no_object_is_no_command(world: AdminWorld, body: str) -> None:
    status, refused = world.ask("/api/pause", body=body)
    assert (status, refused) == (
        400,
        {
            "code": "invalid_request",
            "error": "the body is no JSON object",
            "hint": "it may have table (a text), sid (a text), database (a text), by (a text)",
        },
    )


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "table and sid are missing"),
        ({"table": None}, "table and sid are missing"),
        ({"table": 5}, "table has to be a text"),
        ({"table": ""}, "table has to be a text"),
        ({"sid": []}, "sid has to be a text"),
        ({"table": "items", "Sid": "eu"}, "the body has the unknown field 'Sid'"),
    ],
)
def test_a_command_that_may_mean_something_else_is_none(world: AdminWorld, body: dict, error: str) -> None:
    status, refused = world.ask("/api/pause", body=body)
    assert (status, refused["error"], world.commands) == (400, error, [])


def test_an_unknown_path_says_which_there_are(world: AdminWorld) -> None:
    status, refused = world.ask("/nowhere", method="GET")
    assert status == 404
    assert "GET /readyz, GET /status" in refused["hint"]


def test_a_path_that_is_asked_in_another_way_is_told(world: AdminWorld) -> None:
    status, refused = world.ask("/api/pause", method="GET")
    assert (status, refused["error"]) == (405, "GET /api/pause: method not allowed")
    assert world.ask("/livez", method="HEAD") == (200, "")


def test_tables_are_looked_after_when_that_is_asked(world: AdminWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def run(target: str, *, full: bool) -> Upkeep:
        asked.append((target, full))
        if target == "shop.others":
            raise LakeError("no geheim here")
        return Upkeep(
            target=target, files=1, bytes=2, rows=3, dead_rows=0, delete_files=0, snapshots=1, rewrites=1,
            last_at=None, next_at=None, changed_bytes=0, rewritten_bytes=0,
        )  # fmt: skip

    monkeypatch.setattr(world.app.lake.maintenance, "run", run)
    body = {"targets": ["shop.items", "shop.others"], "full": True}
    status, done = world.ask("/api/maintain", body=body, secrets=["geheim"])
    assert (status, asked) == (200, [("shop.items", True), ("shop.others", True)])
    assert "geheim" not in json.dumps(done)
    assert world.ask("/api/maintain", body={"targets": ["shop.nowhere"]})[0] == 404
    for wrong in ({"targets": "shop.items"}, {"targets": None}, {}, {"targets": [], "full": 1}):
        assert world.ask("/api/maintain", body=wrong)[0] == 400


def test_a_person_may_be_shown_what_quotes_rows_and_nobody_else(world: AdminWorld) -> None:
    error = LakeError("key (geheim) is there twice")
    world.app.states.set("shop.items", "shop_eu", State.ERROR, error)
    everybody = json.dumps(world.ask("/status", token=False, method="GET")[1])
    assert "is there twice" not in everybody
    trusted = json.dumps(world.ask("/status", method="GET", secrets=["geheim"])[1])
    assert "geheim" not in trusted, "a secret is shown to nobody"
    assert "is there twice" in trusted


def test_a_map_that_is_from_no_file_is_not_read_again(world: AdminWorld) -> None:
    status, refused = world.ask("/api/map/reload")
    assert (status, refused["error"]) == (409, "the map is from no file: it cannot be read again")
    assert world.ask("/api/map/reload", token=False)[0] == 401


@pytest.mark.parametrize("body", [{"dry_run": "true"}, {"dry_run": 1}, {"dry_run": None}, {"dryrun": True}])
def test_a_reload_that_is_asked_for_in_other_words_is_none(world: AdminWorld, body: dict[str, Any]) -> None:
    assert world.ask("/api/map/reload", body=body)[0] == 400


@pytest.mark.parametrize(
    "who",
    [
        "observer.Observer", "live_map.LiveMap", "notices.webhooks.Webhooks", "pages.lag_history.LagHistory",
        "schedules.cut_schedule.CutSchedule", "schedules.verify_schedule.VerificationSchedule",
    ],
)  # fmt: skip
def test_who_looks_now_and_then_looks_again_after_what_nobody_thought_of(
    world: AdminWorld, who: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[int] = []

    async def run(_: object) -> None:
        looks.append(1)
        if len(looks) < 3:
            raise RuntimeError("can't start new thread")
        await asyncio.sleep(60)

    monkeypatch.setattr(f"kuvasz.admin.{who}.run", run)
    monkeypatch.setattr(admin_server, "AGAIN_S", 0.0)

    async def wait(_: object, __: str) -> None:
        while len(looks) < 3:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.01)

    with caplog.at_level(logging.ERROR, "kuvasz"):
        world.live(wait)
    told = [record for record in caplog.records if record.getMessage() == Event.BUG_IN_OBSERVER.message]
    assert len(told) == 2
