"""Tables kept in shape beside their streams: what is due is done, and what fails stops nothing else."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.names import CLEAN_BRANCH
from kuvasz.errors import LakeError
from kuvasz.lake.maintenance import maintenance
from kuvasz.lake.maintenance.compaction_policy import Policy
from kuvasz.lake.maintenance.maintenance import Maintainer
from kuvasz.lake.table.table import LakeTable
from kuvasz.lake.table.write_era import WriteEra
from tests.support.changes import TARGET, Sender, delete, insert, update, work
from tests.support.local_catalog import LocalCatalog
from tests.support.local_lake import LocalWorld
from tests.support.waiting import wait_until

OTHER = "shop.others"


class Bench:
    """Two tables, which nobody looks after but who is told to."""

    def __init__(self, folder: Path, **config: object) -> None:
        self.world = LocalWorld(folder, {"enabled": False, "min_files": 3, **config})
        for name in (TARGET, OTHER):
            self.world.prepare("eu", name=name)
        engine = self.world.lake.engine
        self.maintainer = Maintainer(
            self.world.config.maintenance, engine.catalog, engine.jobs, self.world.lake._tables.all,
            engine.readers.job, folder / "maintained",
        )  # fmt: skip
        self.eu = {name: Sender() for name in (TARGET, OTHER)}
        self.keys = itertools.count(1)

    def spread(self, name: str = TARGET, commits: int = 3) -> None:
        for _ in range(commits):
            rows = [insert(next(self.keys), n) for n in range(4)]
            self.world.applied(work(self.eu[name].one(*rows), target=name))

    def close(self) -> None:
        self.maintainer.stop()
        self.world.lake.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_look_merges_what_is_small_in_every_table(bench: Bench) -> None:
    for name in (TARGET, OTHER):
        bench.spread(name)
    before = bench.world.rows()
    bench.maintainer.look()
    assert (bench.world.files(), bench.world.files(OTHER), bench.world.rows()) == (1, 1, before)
    shown = bench.maintainer.upkeep()[TARGET]
    assert (shown.files, shown.rows, shown.dead_rows, shown.rewrites, shown.error) == (1, 12, 0, 1, None)
    assert shown.rewritten_bytes > 0
    assert shown.next_at is None, "nobody looks by himself"


def test_nobody_waits_for_a_table_while_it_is_worked_out_what_is_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundred thousand files that takes seconds, and it is done whenever a few have come."""
    seen = []

    def noted(facts: Any, table: LakeTable, *more: Any) -> Any:
        with ThreadPoolExecutor(1) as another:
            seen.append(another.submit(table.lock.acquire, 0).result())
            another.submit(table.lock.release).result()
        return facts(table, *more)

    monkeypatch.setattr(maintenance, "facts", functools.partial(noted, maintenance.facts))
    bench.spread()
    bench.maintainer.look()
    assert bench.world.files() == 1
    assert seen == [True, True]


def test_few_small_files_are_left_alone_until_all_is_asked_for(bench: Bench) -> None:
    bench.spread(commits=2)
    bench.maintainer.look()
    assert bench.world.files() == 2
    assert bench.maintainer.run(bench.world.loaded(), full=True).files == 1


def test_what_the_map_says_of_one_table_counts_for_it_alone(bench: Bench) -> None:
    for name in (TARGET, OTHER):
        bench.spread(name, commits=4)
    loaded = {name: bench.world.loaded(name) for name in (TARGET, OTHER)}
    loaded[OTHER].definition.target = dataclasses.replace(loaded[OTHER].target, maintenance={"min_files": 5})
    bench.maintainer.merge_small()
    assert (bench.world.files(), bench.world.files(OTHER)) == (1, 4)
    loaded[OTHER].definition.target = dataclasses.replace(loaded[OTHER].target, maintenance={"enabled": False})
    bench.spread(OTHER, commits=4)
    bench.maintainer.look()
    bench.maintainer.merge_small()
    assert bench.world.files(OTHER) == 8, "its files are others' concern"
    bench.maintainer.run(loaded[OTHER], full=False)
    assert bench.world.files(OTHER) == 1, "unless it is asked for"


def test_snapshots_of_one_table_may_be_kept_longer(tmp_path: Path) -> None:
    bench = Bench(tmp_path, snapshot_age="0ms", snapshots_kept=1)
    for name in (TARGET, OTHER):
        bench.spread(name)
    other = bench.world.loaded(OTHER)
    other.definition.target = dataclasses.replace(other.target, maintenance={"snapshot_age": 86_400.0})
    bench.maintainer.look()
    bench.maintainer.look()
    shown = bench.maintainer.upkeep()
    assert (shown[TARGET].snapshots or 0) < 3 <= (shown[OTHER].snapshots or 0)
    bench.close()


def test_a_full_maintenance_leaves_no_delete_file(bench: Bench) -> None:
    bench.spread()
    bench.world.applied(work(bench.eu[TARGET].one(delete(1), update(2, 5))))
    shown = bench.maintainer.run(bench.world.loaded(), full=True)
    assert (shown.delete_files, shown.dead_rows, shown.rows) == (0, 0, 11)


def test_between_looks_only_tables_that_many_files_came_to_are_merged(bench: Bench) -> None:
    bench.spread(TARGET, 3)
    bench.spread(OTHER, 2)
    bench.maintainer.merge_small()
    assert (bench.world.files(), bench.world.files(OTHER)) == (1, 2)
    bench.spread(OTHER, 2)
    bench.maintainer.merge_small()
    assert bench.world.files(OTHER) == 1


def test_a_table_that_nothing_happened_to_is_not_planned_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TARGET, OTHER):
        bench.spread(name)
    bench.maintainer.look()
    bench.maintainer.look()
    planned: list[str] = []
    monkeypatch.setattr(Policy, "plan", lambda *_, **__: planned.append("planned") or [])
    bench.maintainer.look()
    assert planned == []


def test_what_fails_at_one_table_is_shown_and_stops_no_other(bench: Bench) -> None:
    for name in (TARGET, OTHER):
        bench.spread(name)
    bench.world.jobs.failures.append("an executor died")
    bench.maintainer.look()
    shown = bench.maintainer.upkeep()
    assert {name: one.error for name, one in shown.items()} == {TARGET: "an executor died", OTHER: None}
    assert (bench.world.files(), bench.world.files(OTHER)) == (3, 1)
    assert bench.world.orphans() == []
    bench.spread(commits=1)
    bench.maintainer.look()
    assert bench.maintainer.upkeep()[TARGET].error is None


def test_what_failed_is_tried_again_by_the_next_look_also_where_nothing_comes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.spread()
    for _ in range(2):
        bench.world.jobs.failures.append("an executor died")
        bench.maintainer.look()
        assert bench.maintainer.upkeep()[TARGET].error == "an executor died"
    bench.maintainer.look()
    assert (bench.world.files(), bench.maintainer.upkeep()[TARGET].error) == (1, None)
    assert caplog.text.count("a table was not maintained") == 1, "the same is told once an hour"


def test_what_failed_when_a_person_asked_is_tried_again_by_the_next_look(bench: Bench) -> None:
    bench.spread()
    bench.world.jobs.failures.append("an executor died")
    with pytest.raises(LakeError):
        bench.maintainer.run(bench.world.loaded(), full=False)
    bench.maintainer.look()
    assert bench.world.files() == 1


def test_a_mistake_of_ours_stops_no_other_table_either(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TARGET, OTHER):
        bench.spread(name)
    follow, table = type(bench.world.loaded()).follow, bench.world.loaded()

    def broken(self: object) -> bool:
        if self is table:
            raise ZeroDivisionError("a slip")
        return follow(self)

    monkeypatch.setattr(type(table), "follow", broken)
    bench.maintainer.look()
    assert bench.maintainer.upkeep()[TARGET].error == f"table {TARGET}: ZeroDivisionError('a slip')"
    assert bench.world.files(OTHER) == 1


def test_a_mistake_of_ours_in_what_is_counted_stops_no_other_table_either(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (TARGET, OTHER):
        bench.spread(name)
    counted = maintenance.Upkeep

    def broken(**facts: Any) -> Any:
        if facts["target"] == TARGET:
            raise ZeroDivisionError("a slip")
        return counted(**facts)

    monkeypatch.setattr(maintenance, "Upkeep", broken)
    bench.maintainer.look()
    bench.maintainer.look()
    assert (bench.world.files(), bench.world.files(OTHER)) == (1, 1)
    assert set(bench.maintainer.upkeep()) == {OTHER}


def test_a_person_who_asks_is_told_what_failed(bench: Bench) -> None:
    bench.spread()
    bench.world.jobs.failures.append("an executor died")
    with pytest.raises(LakeError, match="an executor died"):
        bench.maintainer.run(bench.world.loaded(), full=True)


def test_a_table_that_has_failed_is_not_rewritten(bench: Bench) -> None:
    bench.spread()
    table = bench.world.lake._tables[TARGET]
    table.era = WriteEra(accepted={}, error=LakeError("the store is full"))
    bench.maintainer.look()
    assert bench.world.files() == 3
    table.era = WriteEra.begin(table.positions)


def test_a_table_goes_on_being_rewritten_where_one_of_its_sources_is_left_out(bench: Bench) -> None:
    bench.spread()
    bench.world.apply(work(bench.eu[TARGET].one(insert(99, "seven"))))
    assert bench.world.lake.failure(TARGET, "eu") is not None
    bench.maintainer.look()
    assert bench.world.files() == 1


def age_snapshots(bench: Bench, seconds: float) -> None:
    stored = bench.world.stored()
    aged = [dataclasses.replace(one, made_ms=one.made_ms - int(seconds * 1000)) for one in stored.now.snapshots]
    stored.change(snapshots=tuple(aged))


@pytest.fixture
def expiring(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, snapshot_age="100s", snapshots_kept=1, interval="1s")
    yield made
    made.close()


def test_snapshots_are_expired_when_the_oldest_is_overdue(expiring: Bench) -> None:
    expiring.spread(commits=2)
    age_snapshots(expiring, 110)
    expiring.maintainer.look()
    assert expiring.world.snapshots() == 2, "many go at once, so it waits a little longer than they may live"
    expiring.spread(commits=1)
    age_snapshots(expiring, 20)
    expiring.maintainer.look()
    assert expiring.maintainer.upkeep()[TARGET].snapshots == expiring.world.snapshots() <= 2


def test_snapshots_that_could_not_be_expired_are_tried_again_however_long_nothing_comes(
    expiring: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring.spread(commits=2)
    expiring.maintainer.look()
    age_snapshots(expiring, 1000)
    load = LocalCatalog.load

    def away(*_: Any) -> Any:
        raise LakeError("the store is away")

    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + 121)
    monkeypatch.setattr(LocalCatalog, "load", away)
    expiring.maintainer.look()
    assert expiring.maintainer.upkeep()[TARGET].error == "the store is away"
    monkeypatch.setattr(LocalCatalog, "load", load)
    monkeypatch.setattr(time, "time", lambda: wall() + 1000)
    expiring.maintainer.look()
    assert expiring.world.snapshots() == 1


def test_who_asks_has_snapshots_expired_at_once(expiring: Bench) -> None:
    expiring.spread(commits=2)
    age_snapshots(expiring, 110)
    assert expiring.maintainer.run(expiring.world.loaded(), full=False).snapshots == 1


def test_the_clean_branch_names_what_was_planned(tmp_path: Path) -> None:
    bench = Bench(tmp_path, clean_branch=True)
    try:
        bench.spread()
        bench.world.applied(work(bench.eu[TARGET].one(delete(1))))
        bench.maintainer.run(bench.world.loaded(), full=True)
        files = bench.world.stored().now.branches[CLEAN_BRANCH]
        assert [(file.data["record-count"], file.deletes) for file in files] == [(11, ())]
    finally:
        bench.close()


def test_a_stop_gives_up_what_has_not_begun(bench: Bench) -> None:
    bench.spread()
    bench.maintainer.stop()
    bench.maintainer.look()
    assert bench.world.files() == 3


def test_the_thread_looks_by_itself_unless_maintenance_is_off(tmp_path: Path, bench: Bench) -> None:
    bench.maintainer.start()
    assert not bench.maintainer._thread.is_alive()
    folder = tmp_path / "on"
    folder.mkdir()
    other = Bench(folder, enabled=True, interval="100ms", merge_interval="50ms")
    try:
        other.spread()
        wait_until(lambda: other.world.files() == 1, "small files are merged")
    finally:
        other.close()
