"""Which rows end the job that writes them is found out by jobs of each source's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from kuvasz.errors import LakeError, TableError
from kuvasz.lake.executors.tasks import ApplyChunks
from kuvasz.ports import Failure, Receipt
from tests.support.changes import TARGET, Sender, again, insert, work
from tests.support.local_lake import LocalJobs, LocalWorld

OTHER = "shop.others"


class Deadly:
    """Jobs of which one ends if it is given rows of a source; all end while Spark is away."""

    def __init__(self, jobs: LocalJobs, source: str) -> None:
        self._run = jobs.run
        self._source = source
        self.is_away = False
        self.ends = 0

    def run(self, job: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any], *more: Any) -> list[Any]:
        if self.is_away or (isinstance(job, ApplyChunks) and any(self._is_of(job, task) for _, task in tasks)):
            self.ends += 1
            raise LakeError("a spark job failed: the worker exited")
        return self._run(job, tasks, *more)

    def _is_of(self, job: ApplyChunks, task: Any) -> bool:
        names = {owner.source for owner in task.owners} or {job.shapes[task.shape].source}
        return self._source in names


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    local_world.prepare("eu", "us", "ap")
    local_world.prepare("eu", name=OTHER)
    return local_world


@pytest.fixture
def deadly(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> Deadly:
    made = Deadly(world.jobs, "us")
    monkeypatch.setattr(world.jobs, "run", made.run)
    return made


def works() -> list[Any]:
    rows = [Sender(name).one(insert(1)) for name in ("eu", "us", "ap")]
    return [work(*rows), work(Sender().one(insert(7)), target=OTHER)]


def test_a_source_whose_rows_end_their_job_has_failed_and_others_are_written(
    world: LocalWorld, deadly: Deadly
) -> None:
    wanted = works()
    with pytest.raises(LakeError, match="the worker exited"):
        world.lake.write(wanted)
    failure, *receipts = world.commit(world.lake.write(wanted, apart=True))
    assert isinstance(failure, Failure)
    assert (failure.target, failure.source, type(failure.error)) == (TARGET, "us", TableError)
    assert failure.error.message.startswith("source us, table public.items: its rows end the job that writes them")
    assert all(isinstance(one, Receipt) for one in receipts)
    assert (world.rows().keys(), world.of("eu", OTHER).keys()) == ({("eu", 1), ("ap", 1)}, {7})
    assert deadly.ends == 5, "together; the bundle, twice; alone, twice"
    assert (world.orphans(), world.orphans(OTHER)) == ([], [])


def test_while_spark_is_away_nobody_has_failed(world: LocalWorld, deadly: Deadly) -> None:
    wanted = works()
    deadly.is_away = True
    with pytest.raises(LakeError, match="the worker exited"):
        world.lake.write(wanted, apart=True)
    assert world.lake.failure(TARGET, "us") is None
    deadly.is_away, deadly._source = False, ""
    world.applied(*wanted)
    assert world.rows().keys() == {("eu", 1), ("us", 1), ("ap", 1)}


def test_a_job_that_was_killed_once_is_run_again(
    world: LocalWorld, deadly: Deadly, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = Sender("us").one(insert(1))
    monkeypatch.setattr(deadly, "_is_of", lambda *_: deadly.ends == 0)
    world.commit(world.lake.write([work(again(segment))], apart=True))
    assert (deadly.ends, world.of("us").keys()) == (1, {1})
