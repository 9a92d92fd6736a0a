from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from kuvasz.model import Delivery, Relation, TableName
from kuvasz.worker.backlog import Backlog
from kuvasz.worker.flush import FlushPolicy
from tests.support.changes import Sender, insert, relation


def _shop(source: str, relation: Relation) -> list[tuple[str, str]]:
    """Every table has a target of its own name, whatever its schema; one has none."""
    return [] if relation.table.name == "unmapped" else [(f"lake.{relation.table.name}", source)]


def delivery(size: int) -> Delivery:
    return Delivery(source="eu", changes=(Sender().one(insert(1)),), through=1108, bytes=size, epoch=1)


def test_what_waits_comes_in_order_up_to_what_a_mini_transaction_takes() -> None:
    backlog = Backlog(FlushPolicy(interval_s=1.0, bytes=100), threading.Condition(), _shop)
    assert backlog.is_empty
    sizes = [60, 60, 60, 10]
    for size in sizes:
        backlog.put(delivery(size))
    assert [one.bytes for one in backlog.pop()] == [60, 60]
    assert [one.bytes for one in backlog.pop()] == [60, 10]
    assert backlog.is_empty
    assert backlog.pop() == []


def test_deliveries_that_are_put_together_are_as_if_one_came_behind_the_other() -> None:
    backlog = Backlog(FlushPolicy(interval_s=1.0, bytes=100), threading.Condition(), _shop)
    backlog.cut(["us"])
    one, held, two = delivery(60), dataclasses.replace(delivery(5), source="us"), delivery(30)
    backlog.put(one, held, two)
    assert backlog.pop() == [one, two]
    backlog.go_on()
    assert backlog.pop() == [held]
    backlog.put()
    assert backlog.is_empty


def test_a_delivery_of_any_size_is_taken() -> None:
    backlog = Backlog(FlushPolicy(interval_s=1.0, bytes=100), threading.Condition(), _shop)
    backlog.put(delivery(5000))
    assert len(backlog.pop()) == 1


def test_little_waits_for_the_interval_and_much_does_not() -> None:
    backlog = Backlog(FlushPolicy(interval_s=100.0, bytes=1 << 20), threading.Condition(), _shop)
    backlog.put(delivery(10))
    assert 90 < backlog.wait_s(time.monotonic()) <= 100
    assert backlog.wait_s(time.monotonic() - 100) <= 0, "the interval counts from the last beginning"
    backlog.put(delivery(1 << 20))
    assert backlog.wait_s(time.monotonic()) <= 0


def test_whoever_waits_is_told_of_a_delivery() -> None:
    changed = threading.Condition()
    backlog = Backlog(FlushPolicy(interval_s=0.0, bytes=1), changed, _shop)
    with changed:
        threading.Thread(target=backlog.put, args=(delivery(10),)).start()
        assert changed.wait_for(lambda: not backlog.is_empty, 10)


@pytest.mark.parametrize(
    ("names", "waits"),
    [
        pytest.param(["items"] * 50, False, id="of one target"),
        pytest.param(["unmapped"] * 50, False, id="of none"),
        pytest.param([f"items{n}" for n in range(50)], True, id="of as many targets"),
    ],
)
def test_a_commit_is_counted_by_its_target_and_not_by_the_tables_that_feed_it(names: list[str], waits: bool) -> None:
    """50 schemas with one table each that feed one target waited as long as 50 commits take."""
    backlog = Backlog(FlushPolicy(interval_s=1.0, bytes=1 << 20), threading.Condition(), _shop)
    for n, name in enumerate(names):
        table = TableName(schema=f"tenant_{n}", name=name)
        sender = Sender(relation=relation(oid=1000 + n, table=table))
        backlog.put(Delivery(source="eu", changes=(sender.one(insert(1)),), through=1108, bytes=10, epoch=1))
    assert (backlog.wait_s(time.monotonic() - 1.0) > 0) is waits


def test_a_cut_holds_what_comes_behind_it_of_some_sources_until_it_goes_on() -> None:
    backlog = Backlog(FlushPolicy(interval_s=1.0, bytes=100), threading.Condition(), _shop)
    backlog.put(delivery(1))
    backlog.cut({"eu"})
    backlog.put(delivery(2))
    backlog.put(dataclasses.replace(delivery(3), source="us"))
    assert not backlog.lacks({"eu"})
    assert [one.bytes for one in backlog.pop()] == [1, 3]
    assert (backlog.is_empty, backlog.lacks({"eu"})) == (True, True)
    backlog.put(delivery(4))
    backlog.go_on()
    backlog.put(delivery(5))
    assert [one.bytes for one in backlog.pop()] == [2, 4, 5]


def test_a_cut_waits_for_no_interval() -> None:
    backlog = Backlog(FlushPolicy(interval_s=100.0, bytes=1 << 20), threading.Condition(), _shop)
    backlog.put(delivery(1))
    backlog.cut({"eu"})
    assert backlog.wait_s(time.monotonic()) <= 0
    backlog.go_on()
    assert backlog.wait_s(time.monotonic()) > 90


def test_another_interval_counts_for_what_waits_already() -> None:
    backlog = Backlog(FlushPolicy(interval_s=100.0, bytes=1 << 20), threading.Condition(), _shop)
    backlog.put(delivery(1))
    backlog.pace(7.0)
    assert 6 < backlog.wait_s(time.monotonic()) <= 7
    backlog.pace(200.0)
    assert 190 < backlog.wait_s(time.monotonic()) <= 200
    backlog.hurry()
    backlog.pace(300.0)
    assert 0 < backlog.wait_s(time.monotonic()) <= 1, "somebody waits for all of it still"
    backlog.pace(0.5)
    assert backlog.wait_s(time.monotonic()) <= 0.5


def test_whoever_waits_for_all_of_it_waits_for_a_second_at_most() -> None:
    backlog = Backlog(FlushPolicy(interval_s=100.0, bytes=1 << 20), threading.Condition(), _shop)
    backlog.put(delivery(1))
    backlog.hurry()
    assert 0 < backlog.wait_s(time.monotonic()) <= 1
