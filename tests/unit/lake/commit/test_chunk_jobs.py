"""Which rows end the job that writes them is found out by jobs of each source's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import LakeError, TableError
from kuvasz.lake.commit.chunk_jobs import ChunkJobs
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone, ChunkTask
from kuvasz.lake.executors.warmup import WarmUp
from kuvasz.ports import Failure, Receipt
from tests.support.changes import TARGET, Sender, again, insert, work
from tests.support.local_lake import LocalJobs, LocalWorld

OTHER = "shop.others"


class Deadly:
    """Jobs of which one ends if it is given rows of a source; all end while Spark is away."""

    def __init__(self, jobs: LocalJobs, source: str) -> None:
        self._run = jobs.run
        self.names = {source}
        self.is_away = False
        self.ends = 0

    def run(self, job: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any], *more: Any) -> list[Any]:
        if self.is_away or (isinstance(job, ApplyChunks) and any(self._is_of(job, task) for _, task in tasks)):
            self.ends += 1
            raise LakeError("a spark job failed: the worker exited")
        return self._run(job, tasks, *more)

    def _is_of(self, job: ApplyChunks, task: Any) -> bool:
        return bool(self.names & ({owner.source for owner in task.owners} or {job.shapes[task.shape].source}))


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
    assert deadly.ends == 8, "all; all, and the bundle twice; its three, two of them, and the one twice"
    assert (world.orphans(), world.orphans(OTHER)) == ([], [])


def test_while_spark_is_away_nobody_has_failed(world: LocalWorld, deadly: Deadly) -> None:
    wanted = works()
    deadly.is_away = True
    with pytest.raises(LakeError, match="the worker exited"):
        world.lake.write(wanted, apart=True)
    assert world.lake.failure(TARGET, "us") is None
    deadly.is_away, deadly.names = False, set()
    world.applied(*wanted)
    assert world.rows().keys() == {("eu", 1), ("us", 1), ("ap", 1)}


def test_while_no_job_of_any_rows_succeeds_nobody_has_failed(world: LocalWorld, deadly: Deadly) -> None:
    """Executors without memory or room: they run what writes nothing."""
    wanted = works()
    deadly.names = {"eu", "us", "ap"}
    with pytest.raises(LakeError, match="the worker exited"):
        world.lake.write(wanted, apart=True)
    assert {world.lake.failure(TARGET, source) for source in ("eu", "us", "ap")} == {None}
    assert (world.orphans(), world.orphans(OTHER)) == ([], [])
    deadly.names = set()
    world.applied(*wanted)


def test_where_rows_come_alone_a_file_of_noise_proves_that_they_end_jobs(world: LocalWorld, deadly: Deadly) -> None:
    (failure,) = world.commit(world.lake.write([work(Sender("us").one(insert(1)))], apart=True))
    assert isinstance(failure, Failure)
    assert (failure.target, failure.source, type(failure.error)) == (TARGET, "us", TableError)
    assert world.jobs.ran == ["WriteNoise", "WarmUp"], "those of the rows ended before they counted"
    assert world.orphans() == []


def test_where_rows_come_alone_nobody_has_failed_while_no_file_can_be_written(
    world: LocalWorld, deadly: Deadly
) -> None:
    world.jobs.failures = ["no space left"]
    with pytest.raises(LakeError, match="no space left"):
        world.lake.write([work(Sender("us").one(insert(1)))], apart=True)
    assert world.lake.failure(TARGET, "us") is None
    assert world.orphans() == []


def test_a_job_that_fails_behind_its_files_leaves_none(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    run, ran = world.jobs.run, itertools.count()

    def lost(job: Any, tasks: Any, *more: Any) -> list[Any]:
        done = run(job, tasks, *more)
        if next(ran) < 2:
            raise LakeError("its result was lost")
        return done

    monkeypatch.setattr(world.jobs, "run", lost)
    world.commit(world.lake.write(works(), apart=True))
    assert world.rows().keys() == {("eu", 1), ("us", 1), ("ap", 1)}
    assert world.orphans() == []


class Fakes:
    """Chunks of sources with these numbers; jobs with some of them end."""

    def __init__(self, count: int, deadly: set[int]) -> None:
        shapes: Any = tuple(SimpleNamespace(source=f"s{n}", table="t", transform=None) for n in range(count))
        layouts: Any = (None,) * count
        self.job = ApplyChunks(shapes=shapes, bounded=((),) * count, layouts=layouts, properties={})
        self.chunks = [
            (n, ChunkTask(shape=n, count=1, lengths=None, data=None, path=f"/t/kvsz-{n}-0.parquet", order=n), 1)
            for n in range(count)
        ]
        self.ran: list[list[int]] = []
        self.paths: list[str] = []
        self.deadly = deadly
        jobs: Any = self
        self.chunk_jobs = ChunkJobs(jobs, jobs, is_apart=True)

    def run(self, job: Any, tasks: Any, _: object) -> list[tuple[int, ChunkDone]]:
        if isinstance(job, WarmUp):
            return []
        assert [job.shapes[task.shape].source for _, task in tasks] == [f"s{n}" for n, _ in tasks]
        assert len(job.shapes) == len(tasks), "no others are sent along"
        self.ran.append([n for n, _ in tasks])
        self.paths += [task.path for _, task in tasks]
        if self.deadly & {n for n, _ in tasks}:
            raise LakeError("the worker exited")
        return [(n, ChunkDone(order=task.order)) for n, task in tasks]


def test_whose_rows_end_jobs_is_found_by_halves() -> None:
    fakes = Fakes(300, {7, 200})
    done = fakes.chunk_jobs.run(fakes.job, fakes.chunks)
    fakes.chunk_jobs.conclude()
    assert {number for number, one in done.items() if one.error is not None} == {7, 200}
    assert done.keys() == set(range(300))
    assert len(fakes.ran) < 40
    assert len(fakes.paths) == len(set(fakes.paths)), "what is left of a job may still be writing"


def test_where_every_job_fails_that_is_plain_soon() -> None:
    fakes = Fakes(300, set(range(300)))
    with pytest.raises(LakeError, match="the worker exited"):
        fakes.chunk_jobs.run(fakes.job, fakes.chunks)
    assert len(fakes.ran) == 21


def test_a_job_that_was_killed_once_is_run_again(
    world: LocalWorld, deadly: Deadly, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = Sender("us").one(insert(1))
    monkeypatch.setattr(deadly, "_is_of", lambda *_: deadly.ends == 0)
    world.commit(world.lake.write([work(again(segment))], apart=True))
    assert (deadly.ends, world.of("us").keys()) == (1, {1})
