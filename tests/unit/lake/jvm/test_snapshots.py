"""What can be told from a table's snapshots, of which some are expired."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kuvasz.lake.jvm.snapshots import Snapshots


class JavaList(list):
    """A list as py4j shows it."""

    def size(self) -> int:
        return len(self)

    def get(self, place: int) -> object:
        return self[place]


class Java:
    """A table of Iceberg: snapshot id -> id of its parent, sequence number, summary; the last one is current."""

    def __init__(self, *chain: tuple[int, int | None, int, dict[str, str]]) -> None:
        self.chain = {
            number: SimpleNamespace(
                snapshotId=lambda number=number: number, parentId=lambda parent=parent: parent,
                sequenceNumber=lambda sequence=sequence: sequence, summary=lambda summary=summary: summary,
                timestampMillis=lambda number=number: number * 100,
            )
            for number, parent, sequence, summary in chain
        }  # fmt: skip
        self.named: dict[str, int] = {}

    def currentSnapshot(self) -> object:  # noqa: N802 (Java)
        return next(reversed(self.chain.values()), None)

    def snapshot(self, number: int) -> object:
        return self.chain.get(number)

    def snapshots(self) -> JavaList:
        return JavaList(self.chain.values())

    def operations(self) -> object:
        return SimpleNamespace(current=lambda: self)

    def refs(self) -> dict[str, object]:
        return {name: SimpleNamespace(snapshotId=lambda number=number: number) for name, number in self.named.items()}


def snapshots(java: Java) -> Snapshots:
    classes = SimpleNamespace(snapshot_json=lambda one: json.dumps({"snapshot-id": one.snapshotId()}))
    handle = SimpleNamespace(java=java, asking=contextlib.nullcontext, classes=classes, head=java.currentSnapshot)
    return Snapshots(cast("Any", handle))


WHOLE = Java((10, None, 1, {"anchor": "a"}), (20, 10, 2, {}), (30, 20, 3, {}))
EXPIRED = Java((20, 10, 2, {}), (30, 20, 3, {}))


def test_an_empty_table_has_none() -> None:
    found = snapshots(Java())
    assert (found.current_id, found.parent_id, found.sequence, found.oldest_ms) == (None, None, 0, None)
    assert found.newest_of_summaries("anchor") == (None, True)
    assert not found.goes_on_from(10, 1)


def test_the_current_one_tells_how_many_rows_there_are_unless_whoever_wrote_it_did_not() -> None:
    told = {"total-records": "70000"}
    assert snapshots(Java((10, None, 1, told), (20, 10, 2, {}))).rows is None
    assert snapshots(Java((10, None, 1, {}), (20, 10, 2, told))).rows == 70000
    assert snapshots(Java()).rows == 0


def test_the_current_one_tells_its_parent_and_sequence() -> None:
    found = snapshots(WHOLE)
    assert (found.current_id, found.parent_id, found.sequence) == (30, 20, 3)


@pytest.mark.parametrize(
    ("java", "snapshot_id", "sequence", "goes_on"),
    [
        (WHOLE, 30, 3, True),
        (WHOLE, 10, 1, True),
        (WHOLE, 99, 1, False),
        (WHOLE, 99, 0, False),
        (EXPIRED, 10, 1, True),
        (EXPIRED, 5, 0, True),
        (EXPIRED, 5, 2, False),
    ],
    ids=["itself", "ancestor", "as-old-as-one", "to-the-root", "parent-of-the-oldest", "expired", "behind-it"],
)
def test_a_table_goes_on_from_an_ancestor_and_from_what_cannot_be_seen(
    java: Java, snapshot_id: int, sequence: int, goes_on: bool
) -> None:
    assert snapshots(java).goes_on_from(snapshot_id, sequence) is goes_on


def test_the_newest_entry_of_a_summary_is_sought_as_far_as_ancestors_are_there() -> None:
    assert snapshots(WHOLE).newest_of_summaries("anchor") == ("a", True)
    assert snapshots(WHOLE).newest_of_summaries("other") == (None, True)
    assert snapshots(EXPIRED).newest_of_summaries("anchor") == (None, False)


def test_the_oldest_one_is_of_those_without_a_name() -> None:
    java = Java((10, None, 1, {}), (20, 10, 2, {}))
    assert snapshots(java).oldest_ms == 1000
    java.named = {"clean": 10, "main": 20}
    assert snapshots(java).oldest_ms is None


@pytest.mark.parametrize(("sequence", "found"), [(0, [10, 20, 30]), (1, [20, 30]), (3, []), (9, [])])
def test_those_behind_a_sequence_number_come_oldest_first(sequence: int, found: list[int]) -> None:
    assert [one["snapshot-id"] for one in snapshots(WHOLE).newer_than(sequence)] == found


@pytest.mark.parametrize("most", [1, 2, 3, 10, None])
def test_of_many_some_come_and_with_the_last_of_these_the_next(most: int | None) -> None:
    """Also where some were expired in between."""
    java = Java(*((number, None, number, {}) for number in range(1, 400) if number % 7))
    seen, sequence, requests = [], 0, 0
    while found := snapshots(java).newer_than(sequence, most):
        requests += 1
        seen += [one["snapshot-id"] for one in found]
        sequence = seen[-1]
        assert most is None or len(found) <= most
    assert seen == list(java.chain)
    assert requests == (1 if most is None else -(-len(seen) // most))


def test_whoever_has_not_looked_for_long_asks_for_little_that_does_not_come() -> None:
    asked: list[int] = []

    class Counted(JavaList):
        def get(self, place: int) -> object:
            asked.append(place)
            return super().get(place)

    java = Java(*((number, None, number, {}) for number in range(1, 5001)))
    java.snapshots = lambda: Counted(java.chain.values())  # type: ignore[method-assign]
    assert [one["snapshot-id"] for one in snapshots(java).newer_than(17, 3)] == [18, 19, 20]
    assert len(asked) < 40
    asked.clear()
    assert [one["snapshot-id"] for one in snapshots(java).newer_than(4998)] == [4999, 5000]
    assert len(asked) < 8
