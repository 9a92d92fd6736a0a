from __future__ import annotations

from typing import Any

import pytest

from kuvasz.errors import TableError
from kuvasz.model import Operations, Replay, SourcePosition
from kuvasz.ports import Failure, Receipt, TableWork
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates
from kuvasz.worker.gather import Gathered
from kuvasz.worker.outcomes import Outcomes

T, OTHER = "shop.items", "shop.others"


class Lot:
    """Told how far replays are."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int, int]] = []

    @property
    def replays(self) -> Lot:
        return self

    def applied(self, target: str, source: str, number: int, offset: int) -> None:
        self.told.append((target, source, number, offset))


class World:
    """Two sources that feed a table, and one that feeds another."""

    def __init__(self, lot: Lot | None = None) -> None:
        self.states, self.progress = TableStates(MemoryNotes()), Progress()
        self.failures: list[Failure] = []
        self.receipts: list[Receipt] = []
        for target, source in ((T, "eu"), (T, "us"), (OTHER, "eu")):
            self.states.add(target, source, "public.t")
            self.states.activate(target, source, 1)
        logs: Any = lot
        self.outcomes = Outcomes(
            self.states, self.progress, logs, on_failure=self.failures.append, on_receipt=self.receipts.append
        )

    def held(self) -> dict[str, frozenset[str]]:
        return {source: self.progress.held(source) for source in ("eu", "us")}


@pytest.fixture
def world() -> World:
    return World()


def test_a_commit_counts_for_the_sources_whose_rows_it_has(world: World) -> None:
    receipt = Receipt(
        target=T, positions={"eu": SourcePosition(lsn=1, commit_us=40), "us": SourcePosition(lsn=2, commit_us=30)},
        rows=5, snapshot_id=7, rows_of={"eu": 5}, bytes_of={"eu": 90},
        operations_of={"eu": Operations(inserts=3, updates=1, deletes=1)}, commit_us=40, seconds=0.5,
    )  # fmt: skip
    world.outcomes.receive(receipt)
    world.outcomes.receive(receipt)
    eu, us = world.states.get(T, "eu"), world.states.get(T, "us")
    assert (eu.rows, eu.inserts, eu.updates, eu.deletes, eu.commits, eu.last_commit_us) == (10, 6, 2, 2, 2, 40)
    assert (eu.bytes, us.bytes) == (180, 0)
    assert (us.rows, us.inserts, us.commits, us.last_commit_seconds) == (0, 0, 2, 0.5)
    assert us.last_commit_us == 30, "another source's clock says nothing of its changes"
    assert world.states.get(OTHER, "eu").commits == 0
    assert world.receipts == [receipt, receipt]


@pytest.mark.parametrize("facts", [{"snapshot_id": None}, {"snapshot_id": 7, "is_first": False}])
def test_what_made_no_snapshot_of_its_own_is_no_commit(world: World, facts: dict[str, Any]) -> None:
    world.outcomes.receive(Receipt(target=T, positions={}, rows=2, rows_of={"eu": 2}, **facts))
    found = world.states.get(T, "eu")
    assert (found.rows, found.commits) == (2, 0)


def test_a_failure_stops_the_table_for_all_its_sources_and_holds_them(world: World) -> None:
    seen: list[dict[str, frozenset[str]]] = []
    world.outcomes._on_failure = lambda _: seen.append(world.held())
    error = TableError("wrong")
    world.outcomes.fail(Failure(target=T, error=error))
    assert [world.states.get(T, source).error for source in ("eu", "us")] == [error, error]
    assert world.states.get(OTHER, "eu").state is State.CATCHING_UP
    assert seen == [{"eu": {T}, "us": {T}}], "held before anybody is told"


def test_a_failure_of_one_source_stops_and_holds_no_other(world: World) -> None:
    error = TableError("wrong")
    world.outcomes.fail(Failure(target=T, source="us", error=error))
    assert [world.states.get(T, source).error for source in ("eu", "us")] == [None, error]
    assert world.held() == {"eu": frozenset(), "us": {T}}
    world.outcomes.fail(Failure(target=T, source="gone", error=error))
    assert world.progress.held("gone") == frozenset(), "nobody would ever release it"


def test_a_table_that_does_not_follow_keeps_its_own_state(world: World) -> None:
    world.states.pause(T, "eu")
    world.outcomes.fail(Failure(target=T, error=TableError("wrong")))
    assert world.states.get(T, "eu").state is State.PAUSED
    assert world.states.get(T, "us").state is State.ERROR
    assert world.held() == {"eu": {T}, "us": {T}}
    assert [failure.target for failure in world.failures] == [T]


def gathered(*works: TableWork, replays: tuple[tuple[str, Replay], ...] = ()) -> Gathered:
    return Gathered(works=works, through={}, bytes_of={}, replays=replays)


def test_a_replay_is_as_far_as_its_target_was_committed() -> None:
    lot = Lot()
    replays = (("eu", Replay(target=T, number=3, end=500)), ("us", Replay(target=OTHER, number=4, end=600)))
    receipt = Receipt(target=T, positions={"eu": SourcePosition(lsn=500)}, rows=1, snapshot_id=7)
    World(lot).outcomes.note_replays(gathered(replays=replays), [receipt])
    assert lot.told == [(T, "eu", 3, 500)]
    World().outcomes.note_replays(gathered(replays=replays), [receipt])


def test_a_replay_of_a_source_that_is_left_out_of_a_commit_is_no_further() -> None:
    lot = Lot()
    replays = tuple((source, Replay(target=T, number=3, end=500)) for source in ("eu", "us"))
    receipt = Receipt(target=T, positions={"us": SourcePosition(lsn=500)}, rows=1, snapshot_id=7)
    World(lot).outcomes.note_replays(gathered(replays=replays), [receipt])
    assert lot.told == [(T, "us", 3, 500)]


def test_all_that_feed_a_target_wait_for_it(world: World) -> None:
    work = TableWork(
        target=T, changes=(), through={"eu": 5}, open_sources=frozenset({"ap"}), abandoned=frozenset({"sa"})
    )
    other = TableWork(target=OTHER, changes=(), through={"eu": 5})
    assert sorted(world.outcomes.sources_of(gathered(work, other), T)) == ["ap", "eu", "sa", "us"]
    assert world.outcomes.sources_of(gathered(work, other), OTHER) == ["eu"]


def test_a_failure_without_a_commit_is_told_once(world: World) -> None:
    failure = Failure(target=T, error=TableError("someone set it back"))
    world.outcomes.fail_following(failure)
    world.outcomes.fail_following(failure)
    assert [world.states.get(T, source).state for source in ("eu", "us")] == [State.ERROR, State.ERROR]
    assert world.states.is_streaming(OTHER, "eu")
    assert world.held() == {"eu": {T}, "us": {T}}
    assert world.failures == [failure]


def test_rows_that_did_not_fit_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    at = SourcePosition(lsn=1)
    world.outcomes.receive(Receipt(target=T, positions={"eu": at}, rows=3, snapshot_id=1, rejected={"eu": 2}))
    counted = {(one.target, one.source): one.rejected for one in world.states.snapshot()}
    assert counted == {(T, "eu"): 2, (T, "us"): 0, (OTHER, "eu"): 0}
    assert [record.__dict__["rows"] for record in caplog.records if record.__dict__["event"] == "rows_rejected"] == [
        2
    ]
