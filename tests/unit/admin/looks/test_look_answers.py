"""Verbs that only look, asked by HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.config.load import load
from kuvasz.errors import ConfigError
from kuvasz.verbs.served.looks import LOOKS
from tests.support.admin_world import AdminWorld


@pytest.fixture
def world(tmp_path: Path) -> AdminWorld:
    found = AdminWorld(tmp_path, url="postgresql://repl:geheim-123@eu1/shop")
    found.loaded = load(tmp_path / "map.yaml", {})
    found.looks = dict(LOOKS)
    return found


def test_the_options_of_the_map_are_shown_without_its_secrets(world: AdminWorld) -> None:
    status, found = world.ask("/api/config", method="GET")
    assert status == 200
    (url,) = [one for one in found if one["path"] == "databases[0].urls[0].url"]
    assert url["value"] == "postgresql://repl:***@eu1/shop"
    assert "geheim-123" not in json.dumps(found)


def test_types_are_those_of_the_verb(world: AdminWorld) -> None:
    status, found = world.ask("/api/types", method="GET")
    assert (status, found[0].keys()) == (200, {"postgresql", "iceberg", "note"})


def test_parameters_are_handed_on_and_others_refused(world: AdminWorld) -> None:
    asked: list[Any] = []
    world.looks["asof"] = lambda _, query: asked.append(query)
    assert world.ask("/api/asof?lsn=eu:0/1&lsn=us:0/2&table=items", method="GET")[0] == 200
    assert asked == [{"lsn": ["eu:0/1", "us:0/2"], "table": ["items"]}]
    status, told = world.ask("/api/asof?at=now", method="GET")
    assert (status, told["error"], told["hint"]) == (
        400, "the unknown parameter 'at'", "there are time, lsn, table",
    )  # fmt: skip


def test_what_makes_no_sense_is_told_without_secrets(world: AdminWorld) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("no moment geheim-123")

    world.looks["asof"] = refuse
    assert world.ask("/api/asof", method="GET", secrets=["geheim-123"])[1]["error"] == "no moment ***"


def test_one_of_a_kind_is_carried_out_at_a_time(world: AdminWorld) -> None:
    at_once: list[int] = []
    running: list[int] = []

    def look(*_: object) -> None:
        running.append(1)
        at_once.append(len(running))
        running.pop()

    world.looks["check"] = look

    async def ask(client: aiohttp.ClientSession, url: str) -> None:
        address = world.stored.address.find()
        assert address is not None
        headers = {"Authorization": f"Bearer {address.token}"}
        await asyncio.gather(*(client.get(f"{url}/api/check", headers=headers) for _ in range(8)))

    world.live(ask)
    assert at_once == [1] * 8


def test_a_map_is_drafted_for_who_brings_a_url_that_means_itself(world: AdminWorld) -> None:
    asked: list[Any] = []
    world.looks["init"] = lambda _, query: asked.append(query)
    body = {"url": "postgresql://de1/shop", "tables": ["shop.*"], "sid": "de", "patterns": True}
    assert world.ask("/api/init", body=body)[0] == 200
    assert asked == [{"url": ["postgresql://de1/shop"], "tables": ["shop.*"], "sid": ["de"], "patterns": [True]}]
    world.looks["init"] = LOOKS["init"]
    status, told = world.ask("/api/init", body={"url": "postgresql://repl:${HOME}@de1/shop"})
    assert (status, told["error"]) == (400, "url must not refer to anything by ${…}")
