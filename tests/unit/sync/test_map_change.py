"""Another map in the place of the one that runs: who is ended, who goes on, and in which order all of it happens."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.config.secrets import SecretFile
from kuvasz.errors import ConfigError, LakeError, SourceRefused, StateError, TableError
from kuvasz.source import conninfo, publication, slots
from kuvasz.state.tables import State
from kuvasz.sync import map_change, sources
from kuvasz.sync.rules.map_difference import difference
from kuvasz.sync.source_sync import SourceSync
from kuvasz.sync.sources import Sources
from tests.support.scene import Scene

ALL: dict[str, Any] = {"eu": ["items", "others"], "us": ["items", "others"], "ap": ["parts"]}


class World(Scene):
    """Sources whose lives are notes of what was asked of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.folder = folder
        self.done: list[str] = []
        self.stubborn: set[str] = set()  #: sources that end only when they are cancelled
        self.ends: dict[str, BaseException] = {}  #: sources that end by themselves
        self.config = self.read(ALL)
        self.sources = Sources(config_sources.resolve(self.config), self.shared)
        monkeypatch.setattr(SourceSync, "run", _life_in(self))
        monkeypatch.setattr(map_change, "_TOGETHER_S", 0.01)
        monkeypatch.setattr(sources, "_DRAIN_S", 0.05)
        monkeypatch.setattr(sources, "_END_S", 0.05)
        lake: Any = self.lake
        self.unmapped: list[BaseException] = []
        ask = lake.unmapped

        def unmapped(*arguments: Any) -> Any:
            if self.unmapped:
                raise self.unmapped.pop()
            self.done.append(f"lake told of {', '.join(sorted(name for name in arguments[0] if '/' not in name))}")
            return ask(*arguments)

        lake.unmapped = unmapped

    def read(self, groups: dict[str, Any], adding: Sequence[Any] = (), **more: Any) -> Config:
        """Return a map of groups of one source each, and of others as they are written."""
        databases = [
            {
                "database": name, "urls": [{"url": f"postgresql:///{name}", "sid": name}],
                "tables": tables if isinstance(tables, dict) else dict.fromkeys(tables),
            }
            for name, tables in groups.items()
        ]  # fmt: skip
        databases += adding
        file = self.folder / "other.yaml"
        file.write_text(json.dumps({"lake": {"namespace": "shop"}, "databases": databases} | more))
        return load(file, {}).config

    async def live_one(self, sync: SourceSync) -> None:
        """Stand for the life of a source."""
        name = sync.source.database
        self.done.append(f"{name} begins")
        if name in self.ends:
            raise self.ends[name]
        while name in self.stubborn or not sync._lifetime.is_ending:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.done.append(f"{name} ends")

    async def _settle(self, target: str) -> None:
        self.done.append(f"{target} settled")

    def live(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have all sources begun while the body runs."""

        async def run() -> None:
            async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
                self.sources.begin(tasks)
                await asyncio.sleep(0.03)
                self.done.clear()
                try:
                    await body()
                finally:
                    self.stubborn.clear()
                    self.sources.quiesce()
                    self.sources.stop()

        asyncio.run(run())

    async def change(self, groups: dict[str, Any], shares: Any = (None, None), **more: Any) -> None:
        """Put another map into use; `shares`: the groups that are applied here, and those that are to be."""
        found = difference(self.config, self.read(groups, **more), self.sources.ended, groups=shares)
        self.config = found.config
        self.sources.change(map_change.take_over(self.sources, found))
        while self.sources.is_changing:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)


def _life_in(world: World) -> Callable[[SourceSync], Coroutine[Any, Any, None]]:
    async def run(sync: SourceSync) -> None:
        await world.live_one(sync)

    return run


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_source_that_differs_is_begun_again_when_nothing_of_it_is_left(world: World) -> None:
    async def body() -> None:
        before = world.sources.all
        world.progress.restarted("eu_eu", 5)
        await world.change(ALL | {"eu": ["items", "more"]})
        assert world.done == [
            "eu ends", "shop.items settled", "shop.others settled", "lake told of eu_eu", "eu begins"
        ]  # fmt: skip
        assert [sync.source.name for sync in world.sources.all] == ["eu_eu", "us_us", "ap_ap"]
        assert world.sources.all[1:] == before[1:]
        assert world.progress.epoch("eu_eu") > 5
        assert [one.target for one in world.states.snapshot("eu_eu")] == ["shop.items", "shop.more"]

    world.live(body)


def test_sources_come_and_go(world: World) -> None:
    async def body() -> None:
        await world.change({"eu": ALL["eu"], "new": ["parts"], "us": ALL["us"]})
        assert [one for one in world.done if "new" in one] == ["lake told of new_new", "new begins"]
        assert [one for one in world.done if "new" not in one] == ["ap ends", "shop.parts settled"]
        assert [sync.source.name for sync in world.sources.all] == ["eu_eu", "new_new", "us_us"]
        assert [one.name for one in world.sources.released] == ["ap_ap"]
        assert world.sources.find("ap_ap") is None
        assert not world.states.snapshot("ap_ap")
        await world.change(ALL)
        assert [one.name for one in world.sources.released] == ["new_new"]
        assert world.sources.of("ap_ap").is_late

    world.live(body)


def test_nothing_of_a_source_begins_before_the_lake_knows_what_left_the_map(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.unmapped = [LakeError("the catalog is away"), LakeError("and still is")]
    monkeypatch.setattr(map_change, "Backoff", type("B", (), {"next_s": lambda self: 0.01}))

    async def body() -> None:
        await world.change(ALL | {"eu": ["items"]})
        assert world.done[-2:] == ["lake told of eu_eu", "eu begins"]

    world.live(body)
    assert caplog.text.count("sources of the new map cannot begin yet") == 2


def test_no_lake_is_searched_for_a_source_that_feeds_what_it_fed(world: World) -> None:
    world.ends = {"ap": SourceRefused("no privilege")}

    async def body() -> None:
        world.sources.earlier.begin()
        world.done.clear()
        await world.change(ALL)
        assert world.done == ["shop.parts settled", "ap begins"]

    world.live(body)


def test_one_that_does_not_end_is_cut_off_and_keeps_no_other_waiting(world: World) -> None:
    world.stubborn = {"eu"}

    async def body() -> None:
        world.progress.routed("eu_eu", 0, 10)
        await world.change(ALL | {"eu": ["items"], "us": ["items"]})
        assert "eu ends" not in world.done
        assert world.done.index("us begins") < world.done.index("eu begins")

    world.live(body)


@pytest.mark.parametrize("is_changed", [False, True], ids=["one that left", "one that differs"])
def test_none_begins_before_all_have_ended_that_fed_the_same_rows(world: World, is_changed: bool) -> None:
    world.stubborn = {"eu"}

    async def body() -> None:
        others = {"eu": ["more"]} if is_changed else {}
        relabelled = {
            "database": "store",
            "urls": [{"url": "postgresql:///eu", "sid": "eu"}],
            "tables": {"items": None},
        }
        await world.change({"us": ALL["us"], "ap": ALL["ap"], **others}, adding=[relabelled])
        assert world.done.index("store begins") > world.done.index("shop.items settled")

    world.live(body)


@pytest.mark.parametrize("goes", ["tenants", "store"])
def test_a_sid_of_the_map_and_the_schemas_that_may_have_it_are_the_same_rows(world: World, goes: str) -> None:
    """A map does not say which sids tenants have: nothing of one may land when the other one has begun."""

    def group(name: str, url: dict[str, str]) -> dict[str, Any]:
        return {"database": name, "urls": [{"url": f"postgresql:///{name}"} | url], "tables": {"items": None}}

    groups = {"tenants": group("tenants", {"schemas": "tenant_(.+)"}), "store": group("store", {"sid": "b"})}
    (comes,) = groups.keys() - {goes}

    async def body() -> None:
        await world.change({"ap": ALL["ap"]}, adding=[groups[goes]])
        world.stubborn = {goes}
        world.done.clear()
        await world.change({"ap": ALL["ap"]}, adding=[groups[comes]])
        assert world.done.index(f"{comes} begins") > world.done.index("shop.items settled")

    world.live(body)


def test_a_lake_that_does_not_answer_keeps_no_other_source_down(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_change, "Backoff", type("B", (), {"next_s": lambda self: 0.01}))
    lake: Any = world.lake
    ask = lake.unmapped

    def unmapped(feeds: Any, *others: Any) -> Any:
        if "new_new" in feeds and "us begins" not in world.done:
            raise LakeError("the catalog is away")
        return ask(feeds, *others)

    lake.unmapped = unmapped

    async def body() -> None:
        await world.change(ALL | {"us": ["items"], "new": ["parts"]})
        assert world.done.index("us begins") < world.done.index("new begins")

    world.live(body)


def test_a_source_that_left_is_told_while_another_does_not_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.stubborn = {"eu"}

    async def body() -> None:
        world.progress.routed("eu_eu", 0, 10)
        work = asyncio.create_task(world.change({"eu": ["items"], "us": ALL["us"]}))
        while "stay, and the slot holds its WAL" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert world.sources.released
        assert "eu begins" not in world.done
        await work

    world.live(body)


def test_a_source_that_had_ended_is_begun_again_and_ends_alone_by_a_map_that_does_not_fit(world: World) -> None:
    world.ends = {"ap": SourceRefused("no privilege")}

    async def body() -> None:
        assert world.sources.ended == {"ap_ap"}
        world.ends = {}
        await world.change(ALL)
        assert world.done == ["shop.parts settled", "lake told of ap_ap", "ap begins"]
        assert not world.sources.ended
        world.ends = {"ap": ConfigError("a file is gone")}
        await world.change(ALL | {"ap": ["parts", "more"]})
        assert world.sources.ended == {"ap_ap"}
        assert world.sources.why_misfit is None, "kuvasz goes on without it"

    world.live(body)


def test_it_is_given_up_when_all_end(world: World) -> None:
    world.stubborn = {"eu"}

    async def body() -> None:
        found = difference(world.config, world.read(ALL | {"eu": ["items"]}))
        world.sources.change(map_change.take_over(world.sources, found))
        await asyncio.sleep(0.01)
        world.sources.quiesce()
        await asyncio.sleep(0.05)
        assert not world.sources.is_changing
        assert "eu begins" not in world.done

    world.live(body)


def test_a_file_of_a_url_that_goes_while_its_source_begins_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a secret does that is mounted anew: what was read of it a moment before is what counts."""
    password = world.folder / "password"
    password.write_text("geheim")
    url = f"postgresql://repl:${{file:{password}}}@new/new"
    new = {"database": "new", "urls": [{"url": url, "sid": "new"}], "tables": {"parts": None}}
    read = SecretFile.read

    def read_once(part: SecretFile) -> str:
        found = read(part)
        password.unlink()
        return found

    async def body() -> None:
        found = difference(world.config, world.read(ALL, adding=[new]))
        monkeypatch.setattr(SecretFile, "read", read_once)
        world.sources.change(map_change.take_over(world.sources, found))
        while world.sources.is_changing:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)
        assert world.sources.has_changed
        assert world.done[-1] == "new begins"

    world.live(body)


class Connection:
    """To a source whose slot and publications are dropped."""

    def __init__(self, dropped: list[str], failures: list[Exception]) -> None:
        self.dropped, self.failures = dropped, failures

    def close(self) -> None:
        pass

    def drop(self, _: object, name: str) -> bool:
        if self.failures:
            raise self.failures.pop()
        self.dropped.append(name)
        return True


@pytest.mark.parametrize("failures", [[], [SourceRefused("it is in use")], [TableError("no")]], ids=len)
def test_what_a_source_has_of_ours_is_dropped_if_the_map_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failures: list[Exception]
) -> None:
    caplog.set_level("INFO")
    dropped: list[str] = []
    connection = Connection(dropped, failures)
    monkeypatch.setattr(conninfo, "connect", lambda _: connection)
    monkeypatch.setattr(slots, "drop", connection.drop)
    monkeypatch.setattr(publication, "drop", connection.drop)
    monkeypatch.setattr(map_change, "Backoff", type("B", (), {"next_s": lambda self: 0.01}))
    is_left = any(isinstance(one, TableError) for one in failures)

    async def body() -> None:
        await world.change({"eu": ALL["eu"], "us": ALL["us"]}, map={"drop_removed": True})
        assert [one.name for one in world.sources.released] == (["ap_ap"] if is_left else [])

    world.live(body)
    assert dropped == ([] if is_left else ["kuvasz_ap_ap", "kuvasz_ap_ap", "kuvasz_ap_ap_ins"])
    said = "stay, and the slot holds its WAL" if is_left else "its slot and publication are dropped"
    assert said in caplog.text


def test_nothing_is_dropped_unless_a_person_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conninfo, "connect", lambda _: pytest.fail("the source is touched"))

    async def body() -> None:
        found = difference(world.config, world.read({"eu": ALL["eu"]}, map={"drop_removed": True}))
        await map_change.take_over(world.sources, found, may_drop=False)
        assert [one.name for one in world.sources.released] == ["us_us", "ap_ap"]

    world.live(body)


def test_a_failure_of_a_table_whose_source_left_is_nobodys(world: World) -> None:
    async def body() -> None:
        world.states.set("shop.parts", "ap_ap", State.STREAMING)
        await world.change({"eu": ALL["eu"], "us": ALL["us"]})
        assert world.states.sources_of("shop.parts") == []

    world.live(body)


def test_tables_that_nobody_feeds_here_are_let_go_of_where_others_apply_too(world: World) -> None:
    """One that left the map may be another's when it comes back: what is known of it here says nothing then."""
    lake: Any = world.lake
    lake.let_go = lambda *targets: world.done.extend(f"{target} let go" for target in targets)

    def gone() -> list[str]:
        found = [one for one in world.done if one.endswith(" let go")]
        world.done.clear()
        return found

    async def body() -> None:
        both = frozenset(ALL)
        await world.change(ALL | {"ap": ["parts", "more"]})
        await world.change(ALL)
        assert gone() == [], "nobody else applies any"
        await world.change(ALL | {"ap": ["pieces"], "eu": ["items"]}, (both, both))
        assert gone() == ["shop.more let go", "shop.parts let go"], "another source feeds the others"
        assert world.sources.earlier.defined.keys() == {"shop.items", "shop.others", "shop.pieces"}
        await world.change(ALL | {"ap": ["pieces"], "eu": ["items"]}, (both, both - {"ap"}))
        assert gone() == ["shop.pieces let go"]

    world.live(body)


def test_a_table_is_loaded_anew_once_and_by_nobody_who_fed_it_before(world: World) -> None:
    """One of a definition that left the map is, too: it stayed loaded."""
    lake: Any = world.lake
    lake.let_go = lambda *targets: world.done.extend(f"{target} let go" for target in targets)
    world.stubborn = {"eu"}
    grown: dict[str, Any] = {"items": {"partition_by": ["id"]}, "others": None}

    async def body() -> None:
        await world.change(ALL | {"eu": grown, "us": grown})
        assert world.done.count("shop.items let go") == 1
        place = world.done.index("shop.items let go")
        assert max(map(world.done.index, ("us ends", "shop.items settled"))) < place
        assert place < min(map(world.done.index, ("us begins", "eu begins")))
        world.done.clear()
        world.stubborn.clear()
        await world.change(ALL | {"eu": grown, "us": grown, "ap": ["pieces"]})
        assert "let go" not in " ".join(world.done)
        await world.change(ALL | {"eu": grown, "us": grown, "ap": {"parts": {"type": "append"}}})
        assert "shop.parts let go" in world.done

    world.live(body)


def test_others_are_told_once_nothing_goes_by_the_map_before(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while a source that is to begin waits for them."""
    monkeypatch.setattr(map_change, "Backoff", type("B", (), {"next_s": lambda self: 0.01}))
    told: list[str] = []
    lake: Any = world.lake
    ask = lake.unmapped

    def unmapped(*arguments: Any) -> Any:
        if "all ended" not in world.done:
            raise StateError("another process goes by the map before")
        return ask(*arguments)

    lake.unmapped = unmapped

    def ended() -> None:
        if not told:
            told.append("once")
            raise StateError("the coordinator does not answer")
        world.done.append("all ended")

    async def body() -> None:
        found = difference(world.config, world.read(ALL | {"eu": ["items", "more"], "us": ["items"]}))
        world.sources.change(map_change.take_over(world.sources, found, on_ended=ended))
        while world.sources.is_changing:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)
        places = [world.done.index(what) for what in ("eu ends", "us ends", "all ended", "eu begins")]
        assert places[0] < places[2] < places[3]
        assert places[1] < places[2]

    world.live(body)


def test_a_group_of_a_log_hears_no_more_of_a_source_that_left_and_leaves_all_that_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(conninfo, "connect", lambda _: pytest.fail("the source is touched"))
    left: list[str] = []
    staged: Any = SimpleNamespace(group="blue", follower=object(), withdraw=left.append)
    world.sources.shared = dataclasses.replace(world.sources.shared, staged=staged)

    async def body() -> None:
        await world.change({"eu": ALL["eu"], "us": ALL["us"]}, map={"drop_removed": True})
        assert world.sources.released == ()

    world.live(body)
    assert left == ["ap_ap"]
    assert "this group hears nothing of it any more" in caplog.text
