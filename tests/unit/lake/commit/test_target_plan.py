"""What is done for a target: which bundles are written once more, and what becomes of those that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from kuvasz.errors import DecodeError, InternalError, KuvaszError, LakeError, SchemaError
from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.bundles import Bundle, Step, sources_of
from kuvasz.lake.commit.chunks import Chunk
from kuvasz.lake.commit.step_shapes import StepShapes
from kuvasz.lake.commit.target_plan import JobInput, TargetPlan
from kuvasz.lake.executors.tasks import ChunkDone
from tests.support.changes import Sender, insert, work
from tests.support.local_lake import LocalWorld


class Bench:
    """A plan of bundles of four sources, s0 to s3, and of s0 and s4."""

    def __init__(self, world: LocalWorld) -> None:
        names = [f"s{number}" for number in range(5)]
        world.prepare(*names)
        self.table, self.batch = world.loaded(), JobInput()
        cut = chunks.cut([Sender(name).one(insert(1)) for name in (*names, "s0")], {}, 1 << 20)
        parts = {step.source: step for step in cut.steps if isinstance(step, Chunk)}
        self.shapes = StepShapes(self.table, world.lake._tables.feeds)
        self.plan = TargetPlan(work=work(), cut=cut, era=self.table.era, position_resets={}, identities=0)
        bundles = [("s0", "s1", "s2", "s3"), ("s0", "s4")]
        steps: list[Step] = [Bundle(chunks=tuple(parts[name] for name in bundle)) for bundle in bundles]
        self.plan.add(steps, self.table, self.shapes, self.batch)

    def separate(self, *errors: tuple[int, KuvaszError, int], is_apart: bool = False) -> list[tuple[str, ...]]:
        """Errors of chunks, with whose they are; returns the steps that there are then."""
        done = {number: ChunkDone() for number in range(len(self.batch.chunks))}
        done |= {number: ChunkDone(error=error, owner=owner) for number, error, owner in errors}
        unknown = self.plan.refuse(done, self.batch)
        self.plan.separate(unknown, self.table, self.shapes, self.batch, is_apart=is_apart)
        return [sources_of(step) for step, _ in self.plan.steps]


@pytest.fixture
def bench(local_world: LocalWorld) -> Bench:
    return Bench(local_world)


def test_who_is_known_is_taken_out_of_a_bundle(bench: Bench) -> None:
    orders = [chunk.order for chunk in bench.batch.chunks]
    assert bench.separate((0, DecodeError("wrong"), 2)) == [("s0", "s1", "s3"), ("s0", "s4")]
    assert [bench.batch.chunks[number or 0].order for _, number in bench.plan.steps] == orders


def test_who_is_wrong_is_taken_out_of_all_bundles(bench: Bench) -> None:
    assert bench.separate((0, DecodeError("wrong"), 0)) == [("s1", "s2", "s3"), ("s4",)]


def test_where_more_is_wrong_each_goes_by_itself(bench: Bench) -> None:
    found = bench.separate((0, DecodeError("wrong"), 1), is_apart=True)
    assert found == [("s0",), ("s2",), ("s3",), ("s0", "s4")]


def test_where_nobody_knows_whose_it_is_nobody_is_taken_out(bench: Bench) -> None:
    found = bench.separate((0, InternalError("a task failed"), -1))
    assert (found, bench.plan.refused) == ([("s0",), ("s1",), ("s2",), ("s3",), ("s0", "s4")], {})


def test_what_is_wrong_with_the_store_is_of_no_source(bench: Bench) -> None:
    assert bench.separate((0, LakeError("storage failed"), -1)) == [("s0", "s1", "s2", "s3"), ("s0", "s4")]


def test_a_bundle_that_the_table_does_not_hold_any_more_loses_nobody_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two jobs the table may have changed."""
    of = bench.shapes.of

    def changed(step: Step) -> Any:
        if sources_of(step)[0] == "s1":
            raise SchemaError("it has other columns now")
        return of(step)

    monkeypatch.setattr(bench.shapes, "of", changed)
    found = bench.separate((0, DecodeError("wrong"), 0))
    assert (found, bench.plan.refused.keys()) == ([("s2",), ("s3",), ("s4",)], {"s0", "s1"})


def test_a_step_that_nobody_thought_of_loses_nobody_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised for it ended the worker, and with it the process."""
    of = bench.shapes.of

    def changed(step: Step) -> Any:
        if sources_of(step)[0] == "s1":
            raise RecursionError("maximum recursion depth exceeded")
        return of(step)

    monkeypatch.setattr(bench.shapes, "of", changed)
    found = bench.separate((0, DecodeError("wrong"), 0))
    assert (found, bench.plan.refused.keys()) == ([("s2",), ("s3",), ("s4",)], {"s0", "s1"})
    assert str(bench.plan.refused["s1"]).startswith("source s1, table shop.items: RecursionError(")
