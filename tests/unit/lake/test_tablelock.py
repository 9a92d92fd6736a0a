"""Nobody waits for ever for a table whose commit hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kuvasz.errors import TableStuck
from kuvasz.lake import tablelock
from kuvasz.lake.tablelock import TableLock


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[TableLock]:
    """A lock that another thread holds until the test ends, or lets go."""
    monkeypatch.setattr(tablelock, "_WAIT_S", 0.05)
    made = TableLock("shop.items")
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with made:
            held.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    made.let_go = let_go.set
    yield made
    let_go.set()
    thread.join(10)


def test_a_holder_that_hangs_is_not_waited_for(lock: TableLock) -> None:
    lock.is_stuck = True
    with pytest.raises(TableStuck, match=r"table shop\.items: catalog or store have not answered"), lock:
        raise AssertionError("it is held")
    assert not lock.acquire(timeout=0.01)


def test_any_other_holder_is_waited_for(lock: TableLock) -> None:
    threading.Timer(0.3, lock.let_go).start()
    with lock, lock, lock.doubtful():
        assert lock.is_stuck
    assert not lock.is_stuck
    assert lock.acquire(timeout=0)
    lock.release()
