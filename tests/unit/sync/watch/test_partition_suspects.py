from __future__ import annotations

from types import SimpleNamespace

import pytest

from kuvasz.sync.rules.partition_memory import KnownPartitions, SeenPartition
from kuvasz.sync.watch import partition_suspects
from kuvasz.sync.watch.partition_suspects import PartitionSuspects

SPEC = SimpleNamespace(key="shop.items")
SEEN = SeenPartition(oid=7, lsn=100, name="items_7")
KNOWN = KnownPartitions(seen=(SEEN,))


class Current:
    """The stream was heard out up to here, and what it brought is committed up to there."""

    heard_lsn = 0
    durable_lsn: int | None = None  #: None: all of it


@pytest.fixture
def current() -> Current:
    return Current()


@pytest.fixture
def suspects(current: Current) -> PartitionSuspects:
    def durable(_: object) -> int:
        return current.heard_lsn if current.durable_lsn is None else current.durable_lsn

    return PartitionSuspects(current, durable)


def test_a_partition_that_is_not_shown_is_waited_for_once(suspects: PartitionSuspects) -> None:
    assert suspects.waits(SPEC, KNOWN, []) == (SEEN,)
    assert suspects.waits(SPEC, KNOWN, []) == ()


def test_one_that_came_and_went_is_waited_for_again(suspects: PartitionSuspects) -> None:
    suspects.waits(SPEC, KNOWN, [])
    assert suspects.waits(SPEC, KNOWN, [SimpleNamespace(oid=7)]) == ()
    assert suspects.waits(SPEC, KNOWN, []) == (SEEN,)


def test_tables_do_not_answer_for_each_other(suspects: PartitionSuspects) -> None:
    suspects.waits(SPEC, KNOWN, [])
    assert suspects.waits(SimpleNamespace(key="shop.others"), KNOWN, []) == (SEEN,)


def test_what_was_emptied_is_told_of_or_not_once_the_stream_was_heard_out(
    suspects: PartitionSuspects, current: Current, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_suspects, "end_to_send", lambda _: 500)
    assert suspects.may_be_told(None, SPEC, {(7, 1)})
    current.heard_lsn = 499
    assert suspects.may_be_told(None, SPEC, {(7, 1)})
    current.heard_lsn = 500
    assert not suspects.may_be_told(None, SPEC, {(7, 1)})
    assert suspects.may_be_told(None, SPEC, {(7, 1)}), "it was told, and this is another time"


def test_what_was_emptied_besides_is_waited_for_anew(
    suspects: PartitionSuspects, current: Current, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter((500, 900))
    monkeypatch.setattr(partition_suspects, "end_to_send", lambda _: next(ends))
    suspects.may_be_told(None, SPEC, {(7, 1)})
    current.heard_lsn = 600
    assert suspects.may_be_told(None, SPEC, {(7, 1), (8, 1)})
    assert suspects.may_be_told(None, SPEC, {(7, 1)})
    current.heard_lsn = 900
    assert not suspects.may_be_told(None, SPEC, {(7, 1)})


def test_what_the_stream_brought_is_committed_before_anything_is_compared_unless_that_takes_too_long(
    suspects: PartitionSuspects, current: Current, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_suspects, "end_to_send", lambda _: 500)
    current.heard_lsn, current.durable_lsn = 500, 499
    assert [suspects.may_be_told(None, SPEC, {(7, 1)}) for _ in range(4)] == [True] * 4
    current.durable_lsn = 500
    assert not suspects.may_be_told(None, SPEC, {(7, 1)})
    current.durable_lsn = 499
    looks = [suspects.may_be_told(None, SPEC, {(7, 1)}) for _ in range(partition_suspects._PATIENCE + 2)]
    assert looks == [True] * (partition_suspects._PATIENCE + 1) + [False]


def test_nobody_is_suspected_at_a_place_of_another_past(
    suspects: PartitionSuspects, current: Current, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter((9000, 500))
    monkeypatch.setattr(partition_suspects, "end_to_send", lambda _: next(ends))
    suspects.waits(SPEC, KNOWN, [])
    suspects.may_be_told(None, SPEC, {(7, 0)})
    suspects.clear()
    current.heard_lsn = 500
    assert suspects.may_be_told(None, SPEC, {(7, 0)})
    assert not suspects.may_be_told(None, SPEC, {(7, 0)})
    assert suspects.waits(SPEC, KNOWN, []) == (SEEN,)
