from __future__ import annotations

import threading
import time

from kuvasz.model import Delivery
from kuvasz.worker.backlog import Backlog
from kuvasz.worker.flush import FlushPolicy
from tests.support.changes import Sender, insert


def delivery(size: int) -> Delivery:
    return Delivery(source="eu", changes=(Sender().one(insert(1)),), through=1108, bytes=size, epoch=1)


def test_what_waits_comes_in_order_up_to_what_a_mini_transaction_takes() -> None:
    backlog = Backlog(FlushPolicy(interval_s=1.0, bytes=100), threading.Condition())
    assert backlog.is_empty
    sizes = [60, 60, 60, 10]
    for size in sizes:
        backlog.put(delivery(size))
    assert [one.bytes for one in backlog.pop()] == [60, 60]
    assert [one.bytes for one in backlog.pop()] == [60, 10]
    assert backlog.is_empty
    assert backlog.pop() == []


def test_a_delivery_of_any_size_is_taken() -> None:
    backlog = Backlog(FlushPolicy(interval_s=1.0, bytes=100), threading.Condition())
    backlog.put(delivery(5000))
    assert len(backlog.pop()) == 1


def test_little_waits_for_the_interval_and_much_does_not() -> None:
    backlog = Backlog(FlushPolicy(interval_s=100.0, bytes=1 << 20), threading.Condition())
    backlog.put(delivery(10))
    assert 90 < backlog.wait_s(time.monotonic()) <= 100
    assert backlog.wait_s(time.monotonic() - 100) <= 0, "the interval counts from the last beginning"
    backlog.put(delivery(1 << 20))
    assert backlog.wait_s(time.monotonic()) <= 0


def test_whoever_waits_is_told_of_a_delivery() -> None:
    changed = threading.Condition()
    backlog = Backlog(FlushPolicy(interval_s=0.0, bytes=1), changed)
    with changed:
        threading.Thread(target=backlog.put, args=(delivery(10),)).start()
        assert changed.wait_for(lambda: not backlog.is_empty, 10)
