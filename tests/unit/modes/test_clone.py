from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kuvasz.errors import DecodeError
from kuvasz.model import Column, PgType, TableType
from kuvasz.modes import clone
from kuvasz.modes.row_rules import Transform
from kuvasz.modes.shape import Shape
from tests.support.changes import INT4, SAME, TEXT, delete, insert, relation, update
from tests.support.shapes import CLONE, keys, pairs, rows, shape
from tests.support.wires import copy_line, joined, message

WIDE = relation(
    Column(name="tags", pg_type=PgType(oid=1007, name="_int4", element=INT4)),
    Column(name="more", pg_type=PgType(oid=70000, name="hstore", schema="public")),
)


def apply(*messages: bytes, to: Shape = CLONE) -> clone.ChunkOutcome:
    data, lengths = joined(list(messages))
    return clone.apply_changes(to, np.frombuffer(data, np.uint8), lengths)


def test_the_last_operation_of_a_key_counts() -> None:
    applied = apply(insert(1, 1, "a"), insert(2, 2, "b"), update(1, 3, "c"), delete(2), delete(9), insert(4, 4, None))
    assert rows(applied.rows) == [("eu", 1, 3, "c"), ("eu", 4, 4, None)]
    assert dict(zip(pairs(applied.keys), applied.written.tolist(), strict=True)) == dict(
        zip(keys(1, 2, 9, 4), [0, -1, -1, 1], strict=True)
    )
    assert (applied.aside, applied.deleted) == (None, 2)


def test_nothing_remains_of_rows_that_come_and_go() -> None:
    applied = apply(insert(1), delete(1))
    assert (applied.rows.num_rows, applied.written.tolist(), applied.deleted) == (0, [-1], 1)


def test_unchanged_values_are_taken_from_earlier_rows_of_the_chunk() -> None:
    applied = apply(insert(1, 1, "big"), update(1, 2, SAME), update(5, 3, SAME, old=1), update(5, 4, SAME))
    assert applied.aside is None
    assert rows(applied.rows) == [("eu", 5, 4, "big")]


def test_what_was_never_sent_waits_for_the_lake() -> None:
    applied = apply(
        insert(1, 1, "a"), update(2, 2, SAME), update(3, 3, "c"), update(40, 4, SAME, old=4), update(40, 5, SAME)
    )
    aside = applied.aside
    assert aside is not None
    assert rows(applied.rows) == [("eu", 1, 1, "a"), ("eu", 3, 3, "c")]
    assert rows(aside.rows) == [("eu", 2, 2, None), ("eu", 40, 5, None)]
    assert pairs(aside.sources) == keys(2, 4)
    assert [mask.tolist() for mask in aside.unchanged] == [[], [], [], [True, True]]
    # Rows of the aside are numbered behind those that are written.
    written = dict(zip(pairs(applied.keys), applied.written.tolist(), strict=True))
    assert [written[key] for key in keys(1, 3, 2, 40, 4)] == [0, 1, 2, 3, -1]


def test_an_unchanged_value_of_a_row_that_was_deleted_before_is_refused() -> None:
    with pytest.raises(DecodeError, match="row message 1 leaves out a value that was never sent") as caught:
        apply(delete(1), update(1, 2, SAME))
    assert "report it" in caught.value.hint


def test_a_row_that_enters_a_filter_without_a_large_value_asks_for_whole_old_rows() -> None:
    filtered = dataclasses.replace(CLONE, transform=Transform(place="source eu, table public.items", filter="n <> 2"))
    assert "REPLICA IDENTITY FULL" in clone.never_sent(filtered, 1).hint


def test_a_key_that_is_unchanged_and_large_is_taken_from_the_old_one() -> None:
    text_key = relation()
    columns = (Column(name="id", pg_type=TEXT, is_key=True), *text_key.columns[1:])
    found = shape(
        type(text_key)(oid=1, table=text_key.table, identity=text_key.identity, columns=columns), TableType.CLONE
    )
    moved = message("U", [SAME, b"5", b"x"], [b"k" * 50, None, None], "K")
    assert rows(apply(moved, to=found).rows) == [("eu", "k" * 50, 5, "x")]
    with pytest.raises(DecodeError, match="an update carries neither its key nor the old one"):
        apply(message("U", [SAME, b"5", b"x"]), to=found)


def test_complete_fills_only_what_was_not_sent() -> None:
    found = shape(WIDE, TableType.CLONE)
    one = message("U", [b"1", b"5", SAME, b"{1}", SAME])
    other = message("U", [b"2", b"6", b"new", SAME, b'"a"=>NULL'])
    aside = apply(one, other, to=found).aside
    assert aside is not None
    before = apply(
        message("I", [b"1", b"0", b"old", b"{9}", b'"k"=>"v"']), message("I", [b"2", None, None, b"{NULL,7}", None]),
        to=found,
    ).rows  # fmt: skip
    completed = clone.complete(aside.rows, aside.unchanged, before)
    assert completed.schema == found.schema
    assert rows(completed) == [("eu", 1, 5, "old", [1], [("k", "v")]), ("eu", 2, 6, "new", [None, 7], [("a", None)])]


def test_a_copy_gives_the_keys_of_the_stream() -> None:
    lines = copy_line([b"1", None, b"tab\there"]) + copy_line([b"2", b"5", b""])
    copied = clone.apply_copy(CLONE, lines)
    assert rows(copied.rows) == [("eu", 1, None, "tab\there"), ("eu", 2, 5, "")]
    assert pairs(copied.keys) == keys(1, 2)
    assert clone.apply_copy(CLONE, b"").rows.num_rows == 0


@pytest.mark.parametrize("text", [b"plain", b"tab\there"])
def test_rows_of_a_copy_outlive_its_bytes(text: bytes) -> None:
    """The reader writes the next rows where these were."""
    line = copy_line([b"1", b"5", text, b"{1,2}", b'"k"=>"v"'])
    data = bytearray(line)
    copied = clone.apply_copy(shape(WIDE, TableType.CLONE), memoryview(data))
    assert bytes(data) == line
    data[:] = b"#" * len(data)
    assert rows(copied.rows) == [("eu", 1, 5, text.decode(), [1, 2], [("k", "v")])]


operations = st.lists(
    st.tuples(st.sampled_from("IUMD"), st.integers(1, 4), st.integers(1, 4), st.booleans()), max_size=25
)


@settings(deadline=None)  # a busy machine is no fault of ours
@given(operations, st.dictionaries(st.integers(1, 4), st.text("xyz", min_size=1)))
@example([("I", 1, 1, True), ("D", 1, 1, False)], {1: "x"})  # a row that waited is gone, and no row stays
def test_chunks_follow_a_dictionary(steps: list[tuple], before: dict[int, str]) -> None:
    now = {key: (0, body) for key, body in before.items()}
    messages = []
    for number, (kind, key, other, is_same) in enumerate(steps, 1):
        body = f"b{number}"
        if key not in now:
            now[key] = (number, body)
            messages.append(insert(key, number, body))
        elif kind == "D":
            del now[key]
            messages.append(delete(key))
        elif kind == "M" and other not in now:
            kept = now.pop(key)[1]
            now[other] = (number, kept if is_same else body)
            messages.append(update(other, number, SAME if is_same else body, old=key))
        else:
            now[key] = (number, now[key][1] if is_same else body)
            messages.append(update(key, number, SAME if is_same else body))
    applied = apply(*messages)
    table = applied.rows
    if applied.aside is not None:
        ids = dict(zip(keys(*range(1, 5)), range(1, 5), strict=True))
        earlier = [before[ids[key]] for key in pairs(applied.aside.sources)]
        old = pa.table({"body": pa.array(earlier, pa.string())})
        table = pa.concat_tables([table, clone.complete(applied.aside.rows, applied.aside.unchanged, old)])
    lake = {keys(key)[0]: (0, body) for key, body in before.items()}
    for key, at in zip(pairs(applied.keys), applied.written.tolist(), strict=True):
        lake.pop(key, None)
        if at >= 0:
            lake[key] = rows(table.slice(at, 1))[0][2:]
    assert lake == {keys(key)[0]: row for key, row in now.items()}
