"""Maintenance without a stream: each table once, and one that fails keeps no other from it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from kuvasz.errors import KuvaszError, LakeError
from kuvasz.lake.maintenance import run_once
from kuvasz.lake.table.table import LakeTable
from kuvasz.ports import Upkeep
from tests.support.changes import TARGET, Sender, delete, insert, target, update, work
from tests.support.local_lake import LocalJobs, LocalWorld

OTHER = "shop.others"


@pytest.fixture
def world(local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> LocalWorld:
    for name in (TARGET, OTHER):
        local_world.prepare("eu", name=name)
        eu = Sender()
        for key in range(3):
            local_world.applied(work(eu.one(insert(key), insert(key + 10)), target=name))
        local_world.applied(work(eu.one(delete(1)), target=name))
    monkeypatch.setattr(run_once, "Catalog", lambda *_: local_world.catalog)
    monkeypatch.setattr(run_once, "Jobs", lambda _: local_world.jobs)
    return local_world


def maintain(world: LocalWorld, *names: str) -> list[Upkeep | tuple[str, KuvaszError]]:
    session: Any = SimpleNamespace()
    return run_once.maintain(world.config, [target(name) for name in names], full=True, session=session)


def test_every_table_is_looked_after_once(world: LocalWorld) -> None:
    before = world.rows()
    outcomes = maintain(world, TARGET, "shop.nowhere", OTHER)
    assert [one.target for one in outcomes if isinstance(one, Upkeep)] == [TARGET, OTHER]
    assert (world.files(), world.files(OTHER), world.rows()) == (1, 1, before)


def test_a_table_that_fails_is_told_beside_the_others(world: LocalWorld) -> None:
    world.jobs.failures.append("an executor died")
    first, second = maintain(world, TARGET, OTHER)
    assert isinstance(first, tuple)
    assert (first[0], first[1].message) == (TARGET, "an executor died")
    assert isinstance(second, Upkeep)


def test_a_catalog_that_does_not_answer_is_told_table_by_table(world: LocalWorld) -> None:
    world.catalog.is_down = True
    ((name, error),) = maintain(world, TARGET)  # type: ignore[misc]
    assert (name, type(error)) == (TARGET, LakeError)
    world.catalog.is_down = False


def test_whoever_streams_notices_and_goes_on(world: LocalWorld) -> None:
    maintain(world, TARGET)
    world.applied(work(Sender(start=7000).one(update(2, 22), delete(12), insert(1, 5))))
    found = world.of("eu")
    assert (found[2], found[1], 12 in found) == ((22, "b"), (5, "b"), False)


@pytest.mark.parametrize("is_first", [False, True])
def test_beside_a_stream_that_commits_all_the_time_it_is_worked_out_again(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    eu = Sender(start=7000)
    keys = iter(range(100, 200))

    def go_on() -> None:
        world.applied(work(eu.one(insert(next(keys)))))

    class Jobs(LocalJobs):
        @override
        def run(self, *arguments: Any, **named: Any) -> list[Any]:
            done = super().run(*arguments, **named)
            go_on()
            return done

    class Loaded(LakeTable):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            if is_first:
                go_on()

    monkeypatch.setattr(run_once, "Jobs", lambda _: Jobs())
    monkeypatch.setattr(run_once, "LakeTable", Loaded)
    (outcome,) = maintain(world, TARGET)
    assert isinstance(outcome, Upkeep), outcome
    assert world.files() < 4
    before = world.of("eu")
    del before[100]
    world.applied(work(eu.one(update(2, 22), delete(100))))
    assert world.of("eu") == {**before, 2: (22, "b")}
