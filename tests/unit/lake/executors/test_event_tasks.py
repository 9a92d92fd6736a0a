"""Rows of a growing table as events, and what they say that the source has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kuvasz.errors import InternalError
from kuvasz.fold.events import NEVER
from kuvasz.lake.executors.comparison_tasks import LakeFiles, Reading, Rows
from kuvasz.lake.executors.event_tasks import Count, EventsDone, ListEvents, split
from kuvasz.modes import dispatch
from kuvasz.modes.shape import Shape
from tests.support.changes import delete, insert, update
from tests.support.shapes import APPEND, CHANGELOG, CLONE, HISTORY, apply, apply_transaction, keys, pairs
from tests.support.wires import copy_line

PART = LakeFiles(files=())


def rows(table: pa.Table, of: Shape, rank: int = 0) -> Rows:
    reading = Reading(shape=of, properties={}, chunk_bytes=1)
    return Rows(
        table=table, keys=reading.keys(table), file=3, rank=rank, places=np.arange(len(table), dtype=np.uint32)
    )


def listed(table: pa.Table, of: Shape, **options: Any) -> EventsDone:
    reading = Reading(shape=of, properties={}, chunk_bytes=1)
    return ListEvents(reading=reading, groups=1, **options).result(PART, iter([rows(table, of, rank=5)]))


def events(done: EventsDone) -> list[tuple[tuple[int, int], int, int, bool]]:
    (found,) = done.groups.values()
    return list(zip(pairs(found.rows.keys), found.first.tolist(), found.second.tolist(), found.is_end.tolist(),
                    strict=True))  # fmt: skip


def test_an_append_tables_rows_are_ordered_by_file_and_place() -> None:
    found = events(listed(apply(insert(1), insert(2)).rows, APPEND))
    assert found == [(keys(1)[0], 5, 0, False), (keys(2)[0], 5, 1, False)]


def test_a_changelogs_deletes_and_keys_that_were_given_up_are_ends() -> None:
    table = apply_transaction(insert(1), delete(2), update(4, old=3)).rows
    found = {(key, is_end) for key, _, _, is_end in events(listed(table, CHANGELOG))}
    assert found == {(keys(1)[0], False), (keys(2)[0], True), (keys(4)[0], False), (keys(3)[0], True)}


def test_a_copied_row_comes_before_the_first_event_of_its_lsn() -> None:
    table = dispatch.apply_copy(CHANGELOG, copy_line([b"7", b"1", b"copied"]), 90).rows
    assert events(listed(table, CHANGELOG)) == [(keys(7)[0], 90, -1, False)]


def test_a_truncation_is_no_event_of_a_key_and_is_told() -> None:
    table = apply_transaction(insert(1), insert(2)).rows
    index = table.schema.get_field_index("_op")
    ops = pa.array(["I", "T"], table.schema.field(index).type)
    done = listed(table.set_column(index, table.schema.field(index), ops), CHANGELOG)
    assert [key for key, *_ in events(done)] == [keys(1)[0]]
    assert done.since == (100, 1)
    assert listed(table, CHANGELOG).since == NEVER


def test_a_historys_versions_have_their_times() -> None:
    table = apply_transaction(insert(1, 1), to=HISTORY).rows
    ((key, begin, end, is_end),) = events(listed(table, HISTORY))
    assert (key, begin < end, is_end) == (keys(1)[0], True, False)


def test_only_wanted_keys_are_listed() -> None:
    every = rows(apply(insert(1), insert(2), insert(3)).rows, APPEND).keys
    wanted = every.take(np.array([1]))
    found = events(listed(apply(insert(1), insert(2), insert(3)).rows, APPEND, wanted=wanted))
    assert [key for key, *_ in found] == [keys(2)[0]]


def test_a_table_whose_rows_have_no_order_has_no_events() -> None:
    with pytest.raises(InternalError):
        listed(apply(insert(1), to=CLONE).rows, CLONE)


def test_every_event_is_of_one_group() -> None:
    (found,) = listed(apply(*(insert(key) for key in range(50))).rows, APPEND).groups.values()
    parts = dict(split(found, 7))
    assert sum(len(part) for part in parts.values()) == 50
    assert len(parts) > 3
    assert list(split(found.take(np.array([], np.int64)), 7)) == []


@pytest.mark.parametrize(("since", "expected"), [(NEVER, 1), ((100, 0), 0), ((100, 2), 0), ((99, 9), 1)])
def test_a_changelog_is_counted_by_what_came_and_what_went(since: tuple[int, int], expected: int) -> None:
    """Two came, one went: what lies before the last TRUNCATE does not count."""
    table = apply_transaction(insert(1), insert(2), delete(1)).rows
    reading = Reading(shape=CHANGELOG, properties={}, chunk_bytes=1)
    assert Count(reading=reading, since=since).result(PART, iter([rows(table, CHANGELOG)])) == expected


def test_what_is_no_log_is_counted_by_its_rows() -> None:
    reading = Reading(shape=APPEND, properties={}, chunk_bytes=1)
    part = rows(apply(insert(1), insert(1)).rows, APPEND)
    assert Count(reading=reading).result(PART, iter([part, part])) == 4
