"""What is durable while commits of a table take long, and what is not when they fail."""

from __future__ import annotations

import concurrent.futures
from types import SimpleNamespace

import pytest

from kuvasz.errors import TableStuck
from kuvasz.ports import Failure, Pending, Receipt, TableWork
from kuvasz.state.budget import Budget
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates
from kuvasz.worker.commit_loop import CommitLoop
from kuvasz.worker.gather import Gathered
from kuvasz.worker.outcomes import Outcomes
from kuvasz.worker.signals import Signals
from kuvasz.worker.under_way import UnderWay
from tests.support.changes import TARGET


class Lake:
    """A lake whose commits all take long."""

    def __init__(self) -> None:
        self.outcomes: list[concurrent.futures.Future[Receipt | Failure | None]] = []

    def commit(self, written: object) -> list[Pending]:
        self.outcomes.append(concurrent.futures.Future())
        return [Pending(target=TARGET, outcome=self.outcomes[-1])]


class Scene:
    """One source with one table, of which three mini-transactions wait aside."""

    def __init__(self) -> None:
        self.lake, self.progress, self.signals = Lake(), Progress(), Signals()
        self.states = TableStates(MemoryNotes())
        self.failures: list[Failure] = []
        self.states.add(TARGET, "eu", "public.items")
        self.states.activate(TARGET, "eu", 1)
        self.progress.restarted("eu", 1)
        outcomes = Outcomes(
            self.states, self.progress, None, on_failure=self.failures.append, on_receipt=lambda _: None
        )
        loop = CommitLoop(
            0, self.lake, outcomes, self.progress, Budget(1 << 20), UnderWay(), self.signals  # type: ignore[arg-type]
        )  # fmt: skip
        for through in (2000, 3000, 4000):
            self.progress.routed("eu", 0, through)
            self.progress.received("eu", through)
            work = TableWork(target=TARGET, changes=(), through={"eu": through})
            items = iter([(Gathered(works=(work,), through={"eu": (through, 1)}, bytes_of={}), None), None])
            loop.run(SimpleNamespace(get=lambda items=items: next(items)))  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_waits_aside_is_confirmed_when_it_came_through(scene: Scene) -> None:
    assert scene.progress.confirmable("eu") < 2000
    seen = []
    for outcome in scene.lake.outcomes:
        outcome.set_result(())
        seen.append(scene.progress.confirmable("eu"))
    assert seen == [2000, 3000, 4000]


@pytest.mark.parametrize("is_stopping", [False, True])
def test_behind_one_that_fails_nothing_is_confirmed(scene: Scene, is_stopping: bool) -> None:
    if is_stopping:
        scene.signals.stop()  # readers confirm once more behind that
    first, *others = scene.lake.outcomes
    first.set_result((Failure(target=TARGET, error=TableStuck("the store refuses")),))
    for outcome in others:  # they are of a table that had failed before
        outcome.set_result(())
    assert scene.progress.confirmable("eu") < 2000
    assert len(scene.failures) == (0 if is_stopping else 1)
    state = scene.states.get(TARGET, "eu").state
    assert (state is State.ERROR) is not is_stopping
