"""Whoever has rows written waits until they are there, and many of them need few commits."""

from __future__ import annotations

import concurrent.futures
import threading

import pyarrow as pa
import pytest

from kuvasz.lake.about.joint_writing import JointWriting
from tests.support.waiting import wait_until


def rows(number: int) -> pa.Table:
    return pa.table({"n": [number]})


class Gate:
    """A store whose first commit takes until it is let go."""

    def __init__(self, *failures: int) -> None:
        self.open = threading.Event()
        self.commits: list[list[int]] = []
        self._failures = failures

    def write(self, found: pa.Table) -> None:
        self.commits.append(found.column("n").to_pylist())
        self.open.wait()
        if len(self.commits) in self._failures:
            raise OSError("no room")


def put_many(gate: Gate, count: int = 100) -> list[concurrent.futures.Future[None]]:
    joint = JointWriting(gate.write)
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        first = pool.submit(joint.put, rows(0))
        wait_until(lambda: bool(gate.commits), "the first one is on its way")
        others = [pool.submit(joint.put, rows(number)) for number in range(1, count)]
        wait_until(lambda: len(joint._waiting) == count - 1, "all others wait")
        assert not any(one.done() for one in (first, *others)), "nobody goes on before it is there"
        gate.open.set()
    return [first, *others]


def test_what_comes_while_one_writes_goes_together() -> None:
    gate = Gate()
    for one in put_many(gate):
        one.result()
    first, then = gate.commits
    assert (first, sorted(then)) == ([0], list(range(1, 100)))


def test_what_cannot_be_written_is_told_to_all_whose_rows_it_were() -> None:
    first, *others = put_many(Gate(2), count=5)
    first.result()
    for one in others:
        with pytest.raises(OSError, match="no room"):
            one.result()


def test_after_a_failure_what_comes_is_written() -> None:
    gate = Gate(1)
    gate.open.set()
    joint = JointWriting(gate.write)
    with pytest.raises(OSError, match="no room"):
        joint.put(rows(1))
    joint.put(rows(2))
    assert gate.commits == [[1], [2]]
