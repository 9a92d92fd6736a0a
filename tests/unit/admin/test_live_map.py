"""The map's file, read again: on whose word, what is refused, and what is handed on."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin import live_map
from kuvasz.admin.live_map import LiveMap
from kuvasz.app import App
from kuvasz.config import load
from kuvasz.config.load import Loaded
from kuvasz.config.model import Config
from kuvasz.config.patterns.found_tables import SeenTable
from kuvasz.errors import ConfigError, LakeError, MapBusy
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.model import TableName, TableType
from kuvasz.sync.rules.map_difference import MapDifference

MAP: dict[str, Any] = {
    "databases": [
        {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None, "others": None}}
    ],
}  # fmt: skip


class World:
    """A map, and an application that stands still and notes what it is to take over."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "map.yaml"
        self.state = str(folder / "state")
        self.write()
        self.loaded = load.load(self.file, {})
        self.app = App(self.loaded.config, lake=MemoryLake())
        self.taken: list[MapDifference] = []
        self.busy = 0
        app: Any = self.app
        app.take_over = self._take_over
        app.refuse_if_changing = self._refuse
        app.ask_lake = self._ask_lake
        self.lake_errors: list[Exception] = []
        self.may_drop: list[bool | None] = []
        self.secrets: set[str] = set()
        self.map = LiveMap(self.app, self.loaded)
        self.map.on_secrets.append(self.secrets.update)

    def write(self, *, password: str = "", watch: bool = False, level: str = "info", **tables: Any) -> None:
        """Put another file in its place, as an editor does."""
        sections = {"pipeline": {"state": self.state}, "map": {"watch": watch}, "log": {"level": level}}
        document = json.loads(json.dumps(MAP | sections))
        (group,) = document["databases"]
        group["tables"] |= tables
        if password:
            group["urls"] = [{"url": f"postgresql://repl:{password}@eu/shop"}]
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(document))
        os.replace(fresh, self.file)  # noqa: PTH105

    def _refuse(self) -> None:
        if self.busy:
            self.busy -= 1
            raise MapBusy("it is busy", hint="later")

    def _ask_lake(self, _: MapDifference) -> None:
        if self.lake_errors:
            raise self.lake_errors.pop()

    def _take_over(self, found: MapDifference, *, may_drop: bool | None) -> None:
        self.app.config = found.config
        self.may_drop.append(may_drop)
        self.taken.append(found)

    def live(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the watch beside a body."""

        async def run() -> None:
            watching = asyncio.create_task(self.map.run())
            try:
                await asyncio.sleep(0.1)
                async with asyncio.timeout(30):
                    await body()
            finally:
                watching.cancel()

        asyncio.run(run())

    async def wait_taken(self, count: int) -> None:
        while len(self.taken) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(live_map, "_LOOK_S", 0.05)
    monkeypatch.setattr(live_map, "_STILL_S", 0.1)
    monkeypatch.setattr(live_map, "_PAUSE_S", 0.05)
    return World(tmp_path)


def test_what_differs_is_taken_over_and_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.write(password="new-secret", extra=None)
    found = asyncio.run(world.map.compare())
    assert (world.taken, found.changed[0].describe()) == ([], "url; added extra")
    assert world.secrets == {"new-secret"}
    assert asyncio.run(world.map.reload("ann")) == world.taken[0]
    (record,) = [one for one in caplog.records if one.msg == "the map is taken over"]
    assert (record.by, [one["source"] for one in record.changed]) == ("ann", ["shop"])  # type: ignore[attr-defined]
    assert asyncio.run(world.map.reload("ann")).is_empty
    assert len(world.taken) == 1, "the second time nothing differs"


def test_a_level_of_the_log_counts_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[str] = []
    monkeypatch.setattr(live_map.log, "set_level", levels.append)
    world.write(extra=None)
    asyncio.run(world.map.reload("ann"))
    assert levels == [], "who runs kuvasz as a library has a level of his own"
    world.write(level="debug")
    asyncio.run(world.map.reload("ann"))
    assert levels == ["debug"]


@pytest.mark.parametrize("text", ["databases: [", "databases: []", "databases:\n- {database: shop, urs: []}"])
def test_a_faulty_map_changes_nothing(world: World, text: str, caplog: pytest.LogCaptureFixture) -> None:
    world.file.write_text(text)
    before = world.app.config
    with pytest.raises(ConfigError):
        asyncio.run(world.map.reload("ann"))
    assert (world.taken, world.app.config) == ([], before)
    assert "the map is not taken over: nothing was changed" in caplog.text
    world.write(extra=None)
    asyncio.run(world.map.reload("ann"))
    assert len(world.taken) == 1


def test_a_password_that_cannot_be_read_changes_nothing(world: World, tmp_path: Path) -> None:
    world.write(password="${file:gone}")
    with pytest.raises(ConfigError, match="gone"):
        asyncio.run(world.map.reload("ann"))
    assert world.taken == []


def test_a_map_from_no_file_cannot_be_read_again(world: World) -> None:
    with pytest.raises(ConfigError, match="from no file"):
        asyncio.run(LiveMap(world.app).reload("ann"))


def test_a_signal_is_heard_also_while_the_last_map_is_put_into_use(world: World) -> None:
    async def body() -> None:
        world.write(extra=None)
        world.busy = 2
        await asyncio.sleep(0.3)
        assert world.taken == [], "nobody watches it"
        world.map.signal()
        await world.wait_taken(1)

    world.live(body)
    assert world.busy == 0


def test_a_map_is_not_read_while_the_last_one_is_put_into_use(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of sources take seconds to read and to compare, and whoever waits asks again and again."""
    monkeypatch.setattr(load, "again", lambda *_: pytest.fail("it was read"))
    world.busy = 1
    with pytest.raises(MapBusy):
        asyncio.run(world.map.reload("ann"))


def test_nothing_ends_when_the_lake_does_not_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write(extra=None)
    world.lake_errors = [LakeError("the catalog is away")]
    with pytest.raises(LakeError):
        asyncio.run(world.map.reload("ann"))
    assert world.taken == []
    assert "the catalog is away" in str(caplog.records[-1].__dict__)
    world.lake_errors = [LakeError("the catalog is away"), LakeError("and still is")]

    async def body() -> None:
        world.map.signal()
        await world.wait_taken(1)

    world.live(body)


def test_a_mistake_of_ours_does_not_end_the_watch(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write(extra=None)
    world.lake_errors = [ValueError("a mistake")]

    async def body() -> None:
        world.map.signal()
        while "reading the map again failed" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        world.map.signal()
        await world.wait_taken(1)

    world.live(body)


def test_a_file_that_is_still_being_written_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_map, "_STILL_S", 0.5)
    world.write(watch=True)
    world.app.config = load.load(world.file, {}).config

    async def body() -> None:
        for number in range(8):
            world.write(watch=True, **{f"half{number}": None})
            await asyncio.sleep(0.1)
        assert world.taken == []
        await world.wait_taken(1)

    world.live(body)
    assert world.taken[0].changed[0].describe() == "added half7"


def test_a_file_that_is_written_while_it_is_read_is_not_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    again = load.again

    def slowly(loaded: Loaded) -> Loaded:
        found = again(loaded)
        world.write(extra=None, more=None)
        return found

    world.write(extra=None)
    monkeypatch.setattr(load, "again", slowly)
    with pytest.raises(ConfigError, match="was written while it was read"):
        asyncio.run(world.map.reload("ann"))
    assert world.taken == []


def test_only_a_person_has_slots_dropped(world: World) -> None:
    async def body() -> None:
        world.write(watch=True)
        world.map.signal()
        await world.wait_taken(1)
        world.write(watch=True, extra=None)
        await world.wait_taken(2)
        world.write(watch=True)
        await world.map.reload("ann")

    world.live(body)
    assert world.may_drop == [None, False, None]


def test_what_patterns_are_matched_with_is_followed_without_the_file(world: World) -> None:
    table = SeenTable(table=TableName(schema="public", name="found"), has_key=True)

    async def body() -> None:
        world.write(**{"f*": None})
        world.map.signal()
        await world.wait_taken(1)
        world.write(unread=None)
        world.app.patterns._take({"shop": (table,)})
        world.busy = 1
        await world.wait_taken(2)

    world.live(body)
    (source,) = world.taken[-1].mapped
    assert {spec.target for spec in source.tables} == {"items", "others", "found"}


def test_whoever_makes_and_drops_tables_has_the_map_compared_a_small_part_of_the_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large maps take seconds of CPU for that, which all sources lack."""
    begun: list[float] = []
    difference = world.app.difference

    def slow(config: Config) -> MapDifference:
        begun.append(time.monotonic())
        time.sleep(0.1)
        return difference(config)

    async def body() -> None:
        world.write(**{"f*": None})
        world.map.signal()
        await world.wait_taken(1)
        app: Any = world.app
        monkeypatch.setattr(app, "difference", slow)
        for number in range(3):
            table = SeenTable(table=TableName(schema="public", name=f"found_{number}"), has_key=True)
            world.app.patterns._take({"shop": (table,)})
            await world.wait_taken(2 + number)

    world.live(body)
    assert len(begun) == 3
    assert all(later - sooner > 1.5 for sooner, later in itertools.pairwise(begun))


def test_a_table_that_another_pattern_would_make_something_else_keeps_nobody_from_following(world: World) -> None:
    """Whoever owns a source drops one and creates the other between two looks, and no map of anybody is refused."""

    def seen(name: str, schema: str = "public") -> SeenTable:
        return SeenTable(table=TableName(schema=schema, name=name), has_key=True)

    def fed() -> dict[str, TableType]:
        (source,) = world.taken[-1].mapped
        return {spec.target: spec.config.type for spec in source.tables if spec.target in {"found", "late"}}

    async def body() -> None:
        world.app.patterns._take({"shop": (seen("found", "audit"),)})
        world.write(**{"audit.*": {"type": "append"}, "f*": None, "l*": None})
        world.map.signal()
        await world.wait_taken(2)
        assert fed() == {"found": TableType.APPEND}
        world.app.patterns._take({"shop": (seen("found"), seen("late"))})
        await world.wait_taken(3)
        assert fed() == {"late": TableType.CLONE}
        await world.wait_taken(4)
        assert fed() == {"late": TableType.CLONE, "found": TableType.CLONE}

    world.live(body)


def test_what_changed_before_the_watch_began_is_seen(world: World) -> None:
    world.write(watch=True)
    world.map.loaded = world.loaded = load.load(world.file, {})
    world.app.config = world.loaded.config
    world.write(watch=True, extra=None)
    world.live(lambda: world.wait_taken(1))


def test_the_file_is_watched_when_the_map_says_so(world: World) -> None:
    async def body() -> None:
        world.write(watch=True)
        world.map.signal()
        await world.wait_taken(1)
        world.write(watch=True, extra=None)
        await world.wait_taken(2)
        world.file.write_text("databases: [")
        await asyncio.sleep(0.2)
        world.write(watch=False, extra=None, more=None)
        await world.wait_taken(3)
        world.write(watch=False)
        await asyncio.sleep(0.3)

    world.live(body)
    assert len(world.taken) == 3, "from then on nobody does"
