"""The thread of a worker that gathers and writes: what it hands over, parks, tries again and gives up."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import JobFailed, LakeError
from kuvasz.model import Delivery
from kuvasz.worker import write_loop
from kuvasz.worker.backlog import Backlog
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.gather import Gathered, ToPark
from kuvasz.worker.handover import Handover
from kuvasz.worker.signals import Signals
from kuvasz.worker.under_way import UnderWay
from kuvasz.worker.write_loop import WriteLoop
from tests.support.changes import Sender, insert
from tests.support.waiting import wait_until

CHANGE = Sender().one(insert(1))


class Bench:
    """One loop, whose lake fails so many times."""

    def __init__(self, policy: FlushPolicy | None = None) -> None:
        self.signals, self.handover, self.under_way = Signals(), Handover(), UnderWay()
        self.backlog = Backlog(policy or FlushPolicy(interval_s=0.0, bytes=1), self.signals.changed, lambda *_: ())
        self.events: list[str] = []
        self.failures = 0
        self.error: type[LakeError] = LakeError
        self.to_park: tuple[ToPark, ...] = ()
        lake: Any = SimpleNamespace(write=self._write)
        lot: Any = SimpleNamespace(park=lambda target, *_, **__: self.events.append(f"parked {target}"))
        self.loop = WriteLoop(0, lake, self._gather, lot, self.signals)
        self.thread = threading.Thread(
            target=self.loop.run, args=(self.backlog, self.under_way, self.handover), daemon=True
        )

    def _gather(self, deliveries: Any) -> Gathered:
        size = sum(one.bytes for one in deliveries)
        return Gathered(works=(), through={}, bytes_of={"eu": size}, to_park=self.to_park)

    def _write(self, _: object, *, apart: bool) -> str:
        self.events.append("write apart" if apart else "write")
        if self.failures:
            self.failures -= 1
            raise self.error("the warehouse does not answer")
        return f"written {self.events.count('write')}"

    def put(self, *sizes: int) -> None:
        for size in sizes:
            self.backlog.put(Delivery(source="eu", changes=(CHANGE,), through=1, bytes=size, epoch=1))

    def stop(self) -> None:
        self.signals.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()


def test_what_waits_is_written_and_handed_over_in_its_order() -> None:
    bench = Bench()
    bench.thread.start()
    bench.put(10)
    first = bench.handover.get()
    bench.put(20)
    second = bench.handover.get()
    assert first is not None
    assert second is not None
    assert [(gathered.bytes, written) for gathered, written in (first, second)] == [
        (10, "written 1"),
        (20, "written 2"),
    ]
    assert bench.under_way.begun == 2
    bench.stop()
    assert bench.handover.get() is None, "who commits is told that nothing comes any more"


def test_the_first_of_all_waits_for_no_interval_however_young_the_machine() -> None:
    bench = Bench(FlushPolicy(interval_s=2 * time.monotonic(), bytes=1 << 20))
    bench.thread.start()
    bench.put(10)
    wait_until(lambda: bench.events == ["write"], "what came first is written", patience_s=20)
    assert bench.handover.get() is not None
    bench.stop()


def test_nothing_is_taken_while_the_last_one_waits_for_its_commit() -> None:
    bench = Bench()
    bench.thread.start()
    bench.put(10)
    wait_until(lambda: not bench.handover.is_empty, "the first is handed over")
    bench.put(20, 30)
    assert bench.under_way.begun == 1
    bench.handover.get()
    following = bench.handover.get()
    assert following is not None
    bench.stop()


def test_what_is_to_be_parked_is_so_before_anything_is_written() -> None:
    bench = Bench()
    bench.to_park = (
        ToPark(target="shop.items", source="eu", epoch=1, changes=(CHANGE,), through=5, is_open=False),
    )  # fmt: skip
    bench.thread.start()
    bench.put(10)
    bench.handover.get()
    bench.stop()
    assert bench.events[:2] == ["parked shop.items", "write"]


def test_a_lake_that_fails_is_asked_again_with_the_same_work(monkeypatch: Any) -> None:
    monkeypatch.setattr(write_loop, "Backoff", lambda: SimpleNamespace(next_s=lambda _: 0.001))
    bench = Bench()
    bench.failures = 2
    bench.thread.start()
    bench.put(10)
    found = bench.handover.get()
    assert found is not None
    assert (found[0].bytes, found[1]) == (10, "written 3")
    assert bench.under_way.begun == 1
    bench.stop()


def test_a_worker_that_stops_gives_up_what_the_lake_does_not_take() -> None:
    bench = Bench()
    bench.failures = 1 << 30
    bench.thread.start()
    bench.put(10)
    wait_until(lambda: "write" in bench.events, "it is tried")
    bench.stop()
    assert bench.handover.get() is None


@pytest.mark.parametrize(
    ("error", "written"), [(JobFailed, ["write"] * 4 + ["write apart"] * 2), (LakeError, ["write"] * 6)]
)
def test_a_job_that_fails_often_may_do_so_for_the_rows_of_one_source(
    monkeypatch: pytest.MonkeyPatch, error: type[LakeError], written: list[str]
) -> None:
    """A store that was away, or a spool without room, says nothing of rows."""
    monkeypatch.setattr(write_loop, "Backoff", lambda: SimpleNamespace(next_s=lambda _: 0.0))
    bench = Bench()
    bench.failures, bench.error = 5, error
    bench.thread.start()
    bench.put(1)
    assert bench.handover.get() is not None
    bench.stop()
    assert bench.events == written
