"""Rows that are deleted at the source stay in a clone as they were, with the time of it."""

from __future__ import annotations

import dataclasses
import datetime
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.errors import DecodeError, InternalError
from kuvasz.fold.keys import Keys
from kuvasz.lake.format.binding import bind
from kuvasz.lake.format.schema import LakeSchema, wanted
from kuvasz.model import TableType
from kuvasz.modes import clone, dispatch, soft
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts
from tests.support.changes import SAME, delete, feed, insert, relation, target, update
from tests.support.shapes import CLONE, pairs
from tests.support.wires import joined


def _soft() -> Shape:
    wants = dataclasses.replace(target(), is_soft=True)
    schema = LakeSchema(schema_id=0, fields=wanted(wants, relation()))
    return bind(wants, schema, ("id",), bytes(range(16)), feed("eu"), relation())


SOFT = _soft()
EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)

#: Seconds since 2000 of a row's deletion, and what the row was.
Stored = dict[tuple[int, int], dict[str, Any]]


def chunk(*messages: bytes, to: Shape = SOFT, begin: int = 1) -> ChunkOutcome:
    """Apply messages, each a transaction of its own a second after the one before."""
    data, lengths = joined(list(messages))
    runs = [[100 * at, (begin + at) * 1_000_000, 7, at + 1, 0] for at in range(len(messages))]
    return dispatch.apply_changes(
        to, np.frombuffer(data, np.uint8), lengths, Facts.of(np.array(runs, np.int64).reshape(-1, 5))
    )


def take(stored: Stored, applied: ChunkOutcome) -> None:
    """Do what a lake does with a chunk."""
    rows = applied.rows
    dropped: set[int] = set()
    if applied.aside is not None:
        aside = applied.aside
        unknown = aside.unchanged[aside.rows.schema.get_field_index(soft.DELETED_AT)]
        earlier = []
        for number, key in enumerate(pairs(aside.sources)):
            if key not in stored:
                assert unknown[number], "a row that lives waits for what is not there"
                dropped.add(rows.num_rows + number)
            earlier.append(stored.get(key, dict.fromkeys(SOFT.schema.names)))
        before = pa.Table.from_pylist(earlier, schema=SOFT.schema)
        rows = pa.concat_tables([rows, clone.complete(aside.rows, aside.unchanged, before, is_soft=True)])
    found = rows.to_pylist()
    for key, place in zip(pairs(applied.keys), applied.written.tolist(), strict=True):
        assert place >= 0, "nothing goes"
        if place not in dropped:
            stored[key] = found[place]


def shown(stored: Stored) -> list[tuple]:
    """Return id, n, body and when it was deleted of all rows."""
    return sorted(
        (row["id"], row["n"], row["body"], row["_deleted_at"] and int((row["_deleted_at"] - EPOCH).total_seconds()))
        for row in stored.values()
    )


def after(*chunks: list[bytes]) -> list[tuple]:
    stored: Stored = {}
    begin = 1
    for messages in chunks:
        take(stored, chunk(*messages, begin=begin))
        begin += len(messages)
    return shown(stored)


def test_a_deleted_row_stays_as_it_was_with_the_time_of_it() -> None:
    assert after([insert(1, 1, "x"), insert(2, 2)], [delete(1)]) == [(1, 1, "x", 3), (2, 2, "b", None)]
    assert after([insert(1, 1, "x"), update(1, 2, SAME), delete(1)]) == [(1, 2, "x", 3)]


def test_one_that_comes_again_lives() -> None:
    assert after([insert(1, 1, "x"), delete(1)], [insert(1, 2, "y")]) == [(1, 2, "y", None)]
    assert after([insert(1, 1, "x")], [delete(1), insert(1, 2, "y"), delete(1)]) == [(1, 2, "y", 4)]


def test_a_changed_key_deletes_the_old_one() -> None:
    moved = [(1, 1, "x", 2), (2, 5, "x", None)]
    assert after([insert(1, 1, "x")], [update(2, 5, SAME, old=1)]) == moved
    assert after([insert(1, 1, "x"), update(2, 5, SAME, old=1)]) == moved
    assert after([insert(1, 1, "x")], [update(2, 5, SAME, old=1), delete(2)]) == [(1, 1, "x", 2), (2, 5, "x", 3)]


def test_what_is_deleted_with_an_unsent_value_has_it() -> None:
    assert after([insert(1, 1, "x")], [update(1, 2, SAME), delete(1)]) == [(1, 2, "x", 3)]


def test_what_was_never_there_is_not_deleted_and_what_was_deleted_is_no_more() -> None:
    assert after([delete(1)]) == []
    assert after([insert(1, 1, "x"), delete(1)], [delete(1)], [delete(1)]) == [(1, 1, "x", 2)]
    assert after([insert(1, 1, "x"), delete(1), delete(1)]) == [(1, 1, "x", 2)]


def test_no_row_takes_a_value_from_a_deleted_one() -> None:
    with pytest.raises(soft.EarlierDeleted) as raised:
        after([insert(1, 1, "x"), insert(2), delete(1)], [update(2, 3, SAME), update(1, 2, SAME)])
    assert pickle.loads(pickle.dumps(raised.value)).row == raised.value.row == 1
    with pytest.raises(DecodeError, match="leaves out a value that was never sent"):
        after([insert(1, 1, "x"), delete(1), update(1, 2, SAME)])


def test_several_sources_are_told_apart() -> None:
    applied = chunk(delete(1), to=dataclasses.replace(SOFT, sid="us"))
    assert applied.aside is not None
    assert applied.aside.rows.column("sid").to_pylist() == ["us"]


def test_times_of_transactions_are_needed() -> None:
    data, lengths = joined([insert(1)])
    with pytest.raises(InternalError, match="without the facts"):
        dispatch.apply_changes(SOFT, np.frombuffer(data, np.uint8), lengths)


def test_others_are_not_soft() -> None:
    assert (SOFT.is_soft, CLONE.is_soft, dataclasses.replace(SOFT, mode=TableType.HISTORY).is_soft) == (
        True, False, False,
    )  # fmt: skip
    assert len(chunk(to=SOFT).keys) == len(Keys.empty())


def test_rows_are_deleted_from_a_time_on() -> None:
    stored: Stored = {}
    take(stored, chunk(insert(1), insert(2), delete(2)))
    rows = pa.Table.from_pylist(list(stored.values()), schema=SOFT.schema)
    assert soft.is_live(rows).tolist() == [True, False]
    us = int((EPOCH + datetime.timedelta(seconds=9)).timestamp() * 1_000_000)
    gone = soft.deleted(rows, us, np.array([True, True]))
    assert gone.column("_deleted_at").to_pylist() == [EPOCH + datetime.timedelta(seconds=second) for second in (9, 3)]
    assert soft.deleted(rows, us, np.array([False, False])) == rows


steps = st.tuples(st.sampled_from("IUMD"), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3]),
                  st.integers(0, 9), st.sampled_from("xy"), st.booleans(), st.booleans())  # fmt: skip


@given(st.lists(steps, max_size=20))
def test_the_lake_has_what_the_source_has_and_what_it_had(found: list[tuple]) -> None:
    lives: dict[int, tuple[int, str]] = {}
    gone: dict[int, tuple[int, str, int]] = {}
    chunks: list[list[bytes]] = [[]]
    for at, (kind, key, other, n, body, is_same, ends) in enumerate(found):
        before = lives.get(key)
        if kind == "I" and before is None:
            lives[key] = (n, body)
            gone.pop(key, None)
            chunks[-1].append(insert(key, n, body))
        elif kind == "D":
            chunks[-1].append(delete(key))
            if before is not None:
                gone[key] = (*lives.pop(key), at + 1)
        elif kind == "U" and before is not None:
            lives[key] = (n, before[1] if is_same else body)
            chunks[-1].append(update(key, n, SAME if is_same else body))
        elif kind == "M" and before is not None and other not in lives:
            gone[key] = (*lives.pop(key), at + 1)
            gone.pop(other, None)
            lives[other] = (n, before[1] if is_same else body)
            chunks[-1].append(update(other, n, SAME if is_same else body, old=key))
        else:
            chunks[-1].append(delete(99))  # a second goes by
        if ends:
            chunks.append([])
    wanted_rows = [(key, *row, None) for key, row in lives.items()] + [(key, *row) for key, row in gone.items()]
    assert after(*chunks) == sorted(wanted_rows)
