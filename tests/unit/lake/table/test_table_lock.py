"""Nobody waits for ever for a table whose commit hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from kuvasz.errors import TableStuck
from kuvasz.lake.table import table_lock
from kuvasz.lake.table.table_lock import TableLock


@pytest.fixture(params=[False, True])
def lock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableLock]:
    """A lock that another thread holds until the test ends, or lets go; the parameter: it waits for the store."""
    monkeypatch.setattr(table_lock, "_WAIT_S", 0.05)
    made = TableLock("shop.items")
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with made, made.doubtful() if request.param else contextlib.nullcontext():
            held.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    made.let_go = let_go.set
    yield made
    let_go.set()
    thread.join(10)


@pytest.mark.parametrize("lock", [True], indirect=True)
def test_a_holder_that_hangs_is_not_waited_for(lock: TableLock) -> None:
    with pytest.raises(TableStuck, match=r"table shop\.items: catalog or store have not answered"), lock:
        raise AssertionError("it is held")
    assert not lock.acquire(timeout=0.01)


@pytest.mark.parametrize("lock", [False], indirect=True)
def test_any_other_holder_is_waited_for(lock: TableLock) -> None:
    threading.Timer(0.3, lock.let_go).start()
    with lock, lock, lock.doubtful():
        assert lock.doubtful_since is not None
    assert lock.doubtful_since is None
    with lock.asking():
        assert lock.doubtful_since is not None
    assert lock.doubtful_since is None
    assert lock.acquire(timeout=0)
    lock.release()


def test_what_ends_by_itself_is_waited_for_within_what_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 sources the index of a commit took ten seconds, and all that waited took the catalog for dead."""
    monkeypatch.setattr(table_lock, "_WAIT_S", 0.05)
    lock = TableLock("shop.items")
    with lock, lock.doubtful():
        first = lock.doubtful_since
        with lock.certain():
            assert lock.doubtful_since is None
            lock.check()
        assert lock.doubtful_since is not None
        assert first is not None
        assert lock.doubtful_since >= first, "what comes then is waited for anew"
    with lock, lock.certain():
        pass
    assert lock.doubtful_since is None


def test_one_who_waits_looks_again_when_the_holder_has_waited_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_lock, "_WAIT_S", 40.0)
    lock = TableLock("shop.items")
    assert lock.patience_s() == table_lock._LOOK_S, "nobody knows whether it will wait"
    with lock, lock.doubtful():
        assert 30 < lock.patience_s() <= 40
        monkeypatch.setattr(table_lock, "_WAIT_S", 0.0)
        assert lock.patience_s() == table_lock._LEAST_S
