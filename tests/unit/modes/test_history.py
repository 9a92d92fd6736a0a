from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.modes import clone, dispatch, history
from kuvasz.modes.transaction_facts import Facts
from tests.support import model
from tests.support.changes import SAME, delete, insert, update
from tests.support.shapes import HISTORY, keys, pairs
from tests.support.wires import copy_line, joined

_EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def at(us: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=us)


def apply(*transactions: tuple[int, list[bytes]]) -> clone.ChunkOutcome:
    """Transactions with their commit times."""
    data, lengths = joined([message for _, messages in transactions for message in messages])
    ends = np.cumsum([len(messages) for _, messages in transactions])
    runs = [[100 * n, us, n, end, 0] for n, ((us, _), end) in enumerate(zip(transactions, ends, strict=True), 1)]
    facts = Facts.of(np.array(runs, np.int64).reshape(-1, 5))
    return dispatch.apply_changes(HISTORY, np.frombuffer(data, np.uint8), lengths, facts)


def versions(rows: pa.Table) -> list[tuple]:
    return versions_of(rows.to_pylist())


def test_each_transaction_makes_a_version_and_its_last_change_counts() -> None:
    applied = apply((10, [insert(1, 1), update(1, 2)]), (20, [update(1, 3)]), (30, [delete(1)]), (40, [insert(1, 4)]))
    assert versions(applied.rows) == [
        (1, 2, at(10), at(20), False), (1, 3, at(20), at(30), True), (1, 4, at(40), model.FOREVER, False),
    ]  # fmt: skip
    assert dict(zip(pairs(applied.keys), applied.written.tolist(), strict=True)) == {keys(1)[0]: 2}


def test_a_chunk_says_when_what_was_there_before_ends() -> None:
    applied = apply((10, [update(5, 1, old=1), delete(2)]), (20, [insert(2, 2)]), (30, [insert(3), delete(3)]))
    closings = applied.closings
    assert closings is not None
    found = dict(zip(pairs(applied.keys), zip((closings.us - history.POSTGRES_EPOCH_US).tolist(),
                                              closings.is_gone.tolist(), strict=True), strict=True))  # fmt: skip
    assert [found[key] for key in keys(1, 5, 2, 3)] == [(10, True), (10, False), (10, True), (30, True)]
    assert versions(applied.rows) == [(5, 1, at(10), model.FOREVER, False), (2, 2, at(20), model.FOREVER, False)]


def test_versions_wait_for_what_was_not_sent() -> None:
    applied = apply((10, [update(1, 1, SAME)]), (20, [update(1, 2, "b")]), (30, [insert(2, 3, "c")]))
    assert versions(applied.rows) == [
        (1, 2, at(20), model.FOREVER, False), (2, 3, at(30), model.FOREVER, False),
    ]  # fmt: skip
    assert applied.aside is not None
    assert versions(applied.aside.rows) == [(1, 1, at(10), at(20), False)]
    assert pairs(applied.aside.sources) == keys(1)
    written = dict(zip(pairs(applied.keys), applied.written.tolist(), strict=True))
    assert [written[key] for key in keys(1, 2)] == [0, 1]


def test_copied_rows_have_always_been_there() -> None:
    assert versions(dispatch.apply_copy(HISTORY, copy_line([b"1", b"2", b"x"]), 0).rows) == [
        (1, 2, model.FIRST, model.FOREVER, False)
    ]


steps = st.lists(
    st.tuples(st.integers(0, 60), st.lists(st.tuples(st.sampled_from("IUDM"), st.integers(1, 3), st.integers(1, 3)),
                                           min_size=1, max_size=3)), max_size=8,
)  # fmt: skip


class Lake:
    """Versions by key, as the driver keeps them: the newest can be ended, and what a chunk opened moved."""

    def __init__(self) -> None:
        self.rows: dict[tuple, list[dict]] = {}

    def take(self, applied: clone.ChunkOutcome) -> None:
        closings = applied.closings
        assert closings is not None
        table = applied.rows
        floors = np.full(len(applied.keys), history.NEVER_US)
        found = pairs(applied.keys)
        for number, key in enumerate(found):
            known = self.rows.setdefault(key, [])
            if not known:
                continue
            last = pa.Table.from_pylist([known[-1]], schema=table.schema)
            gone = closings.is_gone[[number]]
            closed = history.close(
                history.micros(last, history.START), history.micros(last, history.END), closings.us[[number]], gone
            )
            floors[number] = closed.floor[0]
            if closed.is_replaced[0]:
                known.pop()
            if closed.is_copied[0]:
                known += history.closed_rows(last, closed.end, gone).to_pylist()
        late = np.flatnonzero(floors > closings.first_start)
        again = np.isin(closings.key_of, late)
        for row, key in zip(
            table.filter(pa.array(~again)).to_pylist(), closings.key_of[~again].tolist(), strict=True
        ):
            self.rows[found[key]].append(row)
        if len(late):
            key = np.searchsorted(late, closings.key_of[again]).astype(np.int32)
            moved, newest = history.moved(table.filter(pa.array(again)), key, floors[late])
            assert moved.take(pa.array(newest)).column("id").to_pylist() == [
                moved.column("id")[int(row)].as_py() for row in newest
            ]
            ids = dict(zip(keys(1, 2, 3), (1, 2, 3), strict=True))
            for row in moved.to_pylist():
                place = next(key for key in found if ids[key] == row["id"])
                self.rows[place].append(row)


def change(now: dict[int, dict], kind: str, key: int, other: int, number: int) -> tuple[model.Event, bytes]:
    """Do one thing as a database would; return what happened and what it logs."""
    row = {"sid": "eu", "id": key, "n": number, "body": "b"}
    old = now.pop(key, None)
    if old is None:
        event, message = model.Event(op="I", new=row), insert(key, number)
    elif kind == "D":
        return model.Event(op="D", old=old), delete(key)
    elif kind == "M" and other != key and other not in now:
        row["id"] = other
        event, message = model.Event(op="U", old=old, new=row), update(other, number, old=key)
    else:
        event, message = model.Event(op="U", old=old, new=row), update(key, number)
    now[row["id"]] = row
    return event, message


@settings(deadline=None)  # a busy machine is no fault of ours
@given(steps, st.lists(st.booleans(), min_size=8, max_size=8))
def test_any_times_give_what_the_model_says(transactions: list[tuple], cuts: list[bool]) -> None:
    now: dict[int, dict] = {}
    told: list[model.Transaction] = []
    lake, waiting = Lake(), []
    for number, (us, changes) in enumerate(transactions):
        done = [change(now, *one, number) for one in changes]
        told.append(model.Transaction(events=[event for event, _ in done], at=at(us)))
        waiting.append((us, [message for _, message in done]))
        if cuts[number] or number == len(transactions) - 1:
            lake.take(apply(*waiting))
            waiting = []
    found = sorted(versions_of(row for rows in lake.rows.values() for row in rows))
    assert found == sorted(versions_of(model.history([], told, ("id",))))
    for rows in lake.rows.values():
        assert all(row["kvsz_start"] < row["kvsz_end"] for row in rows)
        assert all(before["kvsz_end"] <= after["kvsz_start"] for before, after in itertools.pairwise(rows))


def versions_of(rows: Iterable[dict]) -> list[tuple]:
    return [tuple(row[name] for name in ("id", "n", "kvsz_start", "kvsz_end", "kvsz_deleted")) for row in rows]
