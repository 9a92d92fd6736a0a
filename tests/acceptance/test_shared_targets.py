"""Two processes share the targets of four groups: one is killed, sleeps, is drained or joins, and nothing is lost.

In the first test both are in this process, with one lake in memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from kuvasz.admin.live_map import LiveMap
from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.state.store import cluster_member, group_holders
from kuvasz.state.tables import State
from kuvasz.verbs.cluster import drain
from kuvasz.verbs.cluster.applying import GroupsApplied
from kuvasz.verbs.cluster.standby import map_digest
from tests.support.lake import MemoryPipeline
from tests.support.load import TABLES
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process
from tests.support.shared_appliers import SharedAppliers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]

GROUPS = ("de", "es", "eu", "fr")


@pytest.fixture
def databases(postgres18: EmbeddedPostgres) -> Iterator[list[Database]]:
    made = [create_database(postgres18) for _ in range(len(GROUPS) + 1)]
    yield made
    for database in made:
        drop_database(database)


@pytest.fixture
def appliers(databases: list[Database], new_process: Callable[..., Process]) -> SharedAppliers:
    *sources, coordinator = databases
    return SharedAppliers(dict(zip(GROUPS, sources, strict=True)), coordinator, new_process, lease_s=5)


class Applier(MemoryPipeline):
    """A process that applies, in this one; its lake is that of others as well."""

    def __init__(self, appliers: SharedAppliers, name: str, lake: MemoryLake) -> None:
        self.loaded = load(appliers.make(name).map, {})
        super().__init__(self.loaded.config, None)  # type: ignore[arg-type]
        self.lake = lake
        found = cluster_member(self.config, "applies", lambda _: None)
        assert found is not None
        self.member = found

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        holders = group_holders(self.config)
        assert holders is not None
        self.member.join()
        assert self.member.take("applies", map_digest(self.config)) is None
        groups = GroupsApplied(holders)
        groups.begin(self.config)
        self.app = App(self.config, lake=self.lake, holds_lease=True, claims=groups)
        self.live_map = LiveMap(self.app, self.loaded)
        sharing = asyncio.create_task(groups.run(self.app, self.live_map))
        self._ready.set()
        try:
            return await self.app.run()
        finally:
            sharing.cancel()
            self.member.leave()

    @property
    def groups(self) -> set[str]:
        """What it applies."""
        return {sync.source.name for sync in self.app.sources}


def copies(applier: Applier) -> int:
    """Return how many copies of tables it made that it has now, since it has them; one group was out of the map."""
    return sum(state.copies for state in applier.app.states.snapshot() if state.source != GROUPS[-1])


def assert_equal(appliers: SharedAppliers, lake: MemoryLake) -> None:
    """Row for row."""
    for name, database in appliers.sources.items():
        for table in TABLES:
            expected = Counter(database.execute(f"SELECT * FROM {table}"))
            found = Counter(tuple(row.values()) for row in lake.rows(f"shop.{table}_{name}").to_pylist())
            assert found == expected


def test_groups_move_between_two_that_live_and_keep_what_is_noted_of_them(appliers: SharedAppliers) -> None:
    lake = MemoryLake()
    appliers.read.start()
    with Applier(appliers, "one", lake) as one, appliers.load():
        assert one.groups == set(GROUPS), "who is alone has all from the start"
        one.wait_streaming()
        with Applier(appliers, "two", lake) as two:
            wait_until(lambda: len(two.groups) == len(one.groups) == 2, lambda: f"{one.groups}, {two.groups}")
            assert not one.groups & two.groups
            two.wait_streaming()
            appliers.wait_applied()
            moved = min(one.groups)
            one.tell("pause", f"shop.items_{moved}", moved)
            one.wait_state(moved, f"shop.items_{moved}", State.PAUSED)
            told = drain.run(one.config, one.member.node)
            assert "gives its targets away" in told
            wait_until(lambda: two.groups == set(GROUPS), lambda: f"{one.groups}, {two.groups}")
            wait_until(lambda: not one.groups, "it has none left")
            two.wait_state(moved, f"shop.items_{moved}", State.PAUSED)
            two.tell("resume", f"shop.items_{moved}", moved)
            two.wait_streaming()
            assert "takes its share" in drain.run(one.config, one.member.node, is_over=True)
            wait_until(lambda: len(two.groups) == len(one.groups) == 2, lambda: f"{one.groups}, {two.groups}")
            appliers.wait_applied()
            # A map that one of them reads again is the other one's as soon as its file is the same.
            appliers.write_map(GROUPS[:-1])
            one.call(one.live_map.reload("the test"))
            wait_until(
                lambda: one.groups | two.groups == set(GROUPS[:-1]), lambda: f"{one.groups}, {two.groups}"
            )  # fmt: skip
            wait_until(lambda: appliers.held().keys() == set(GROUPS[:-1]), lambda: f"{appliers.held()}")
            appliers.write_map(GROUPS)
            two.call(two.live_map.reload("the test"))
            wait_until(lambda: one.groups | two.groups == set(GROUPS), lambda: f"{one.groups}, {two.groups}")
            wait_until(lambda: len(two.groups) == len(one.groups) == 2, lambda: f"{one.groups}, {two.groups}")
            appliers.wait_applied()
            assert not two.errors()
            assert copies(two) == 0, "nothing is copied again"
        wait_until(lambda: one.groups == set(GROUPS), lambda: f"{one.groups}")
        appliers.wait_applied()
        assert not one.errors()
        assert copies(one) == 0, "nor of what has come back"
        assert not one.app.released
    # After the load: the last of it is applied by who begins now.
    with Applier(appliers, "one", lake) as one:
        appliers.wait_applied()
        assert not one.errors()
    assert_equal(appliers, lake)
    appliers.read.terminate()


def test_a_table_that_goes_to_a_group_of_another_process_waits_until_that_has_the_map_too(
    appliers: SharedAppliers,
) -> None:
    """Until then the first one writes it by its own map: its changes would come between the rows of the second."""
    lake = MemoryLake()
    appliers.read.start()
    with Applier(appliers, "one", lake) as one, Applier(appliers, "two", lake) as two, appliers.load():
        wait_until(lambda: len(two.groups) == len(one.groups) == 2, lambda: f"{one.groups}, {two.groups}")
        one.wait_streaming()
        two.wait_streaming()
        first, second = min(one.groups), min(two.groups)
        target = f"shop.items_{first}"
        for name, goes_to in ((first, "items_moved"), (second, f"items_{first}")):
            (mine,) = (found for found in appliers.groups if found["database"] == name)
            mine["tables"]["items"]["target"] = goes_to
        appliers.all["two"].write_map(appliers.groups)
        two.call(two.live_map.reload("the test"))
        wait_until(lambda: two.app.sync(second).is_late, "it is begun as the new map says")
        time.sleep(3)
        assert two.app.is_changing
        assert set(lake.positions(target)) == {first}, "the first process has it, and nobody else"
        appliers.all["one"].write_map(appliers.groups)
        for applier in (one, two):
            wait_until(lambda: not applier.app.is_changing, "the map is in use")  # noqa: B023
        wait_until(lambda: set(lake.positions(target)) == {second}, lambda: f"{lake.positions(target)}")
        one.wait_streaming()
        two.wait_streaming()
        appliers.wait_applied()
        assert one.groups | two.groups == set(GROUPS)
    with Applier(appliers, "one", lake) as one:
        appliers.wait_applied()
        assert not one.errors()
    for name, found in ((first, "shop.items_moved"), (second, target)):
        expected = Counter(appliers.sources[name].execute("SELECT * FROM items"))
        assert Counter(tuple(row.values()) for row in lake.rows(found).to_pylist()) == expected
    appliers.read.terminate()


def assert_does_not_wait(appliers: SharedAppliers, name: str, other: str) -> None:
    """Have a process commit while another one stands still, for less than a lease."""
    going, still = appliers.all[name], appliers.all[other]
    os.killpg(still.pid, signal.SIGSTOP)
    try:
        before = len(going.found("committed"))
        time.sleep(appliers.lease_s / 3)
        assert len(going.found("committed")) > before + 3, appliers.report([name])
    finally:
        os.killpg(still.pid, signal.SIGCONT)
    still.wait_event("committed", len(still.found("committed")) + 1)


@pytest.mark.slow
@pytest.mark.spark
def test_what_one_applied_that_is_killed_or_sleeps_is_applied_on_by_the_other(appliers: SharedAppliers) -> None:
    appliers.read.start()
    appliers.start("one", "two")
    with appliers.load():
        before = appliers.wait_shared("one", "two")
        assert sorted(node["targets"] for node in appliers.nodes().values() if node["role"] == "apply") == [4, 4]
        appliers.wait_applied()
        assert_does_not_wait(appliers, "two", "one")
        begin = time.monotonic()
        appliers.all["one"].kill()
        taken_s = appliers.taken_over_s("one", begin)
        print(f"with a lease of {appliers.lease_s} s, all is held after {taken_s:.1f} s")
        appliers.wait_applied()
        kept = {name for name, node in before.items() if node == appliers.node("two")}
        given = {one["group"] for one in appliers.all["two"].found("group_given_back")}
        assert not given & kept, "nothing else moves"
        appliers.start("one")
        appliers.wait_shared("one", "two")
        appliers.wait_applied()
        begin = time.monotonic()
        os.killpg(appliers.all["two"].pid, signal.SIGSTOP)
        appliers.taken_over_s("two", begin)
        appliers.wait_applied()
        while time.monotonic() < begin + 3 * appliers.lease_s:
            time.sleep(0.1)
        os.killpg(appliers.all["two"].pid, signal.SIGCONT)
        assert appliers.all["two"].wait() == 1, appliers.report(["two"])
        assert any("the lease is lost" in line for line in appliers.all["two"].output), appliers.report(["two"])
        appliers.start("two")
        appliers.wait_shared("one", "two")
        drained = appliers.read.run("cluster", "drain", appliers.node("one"))
        assert drained.returncode == 0, drained.stderr
        appliers.wait_shared("two")
    appliers.wait_applied()
    for name in ("one", "two"):
        assert not appliers.all[name].found("copied"), "nothing is copied again"
        appliers.all[name].terminate()
    appliers.read.terminate()
    appliers.assert_equal()
