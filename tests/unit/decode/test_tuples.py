"""Row messages: what is built comes back, what is broken is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.decode import cells, tuples
from kuvasz.decode.tuples import DELETE, INSERT, KEY, NULL, OLD, UNCHANGED, UPDATE, fill_unchanged, split_changes
from kuvasz.errors import DecodeError
from kuvasz.model import Operations
from tests.support import wires
from tests.support.examples import examples
from tests.support.wires import joined, message

values = st.none() | st.binary(max_size=12)


def _row_messages(columns: int) -> st.SearchStrategy[tuple[str, list | None, list | None, str]]:
    """Tag, new row, old row, tag of the old row."""
    row = st.lists(values, min_size=columns, max_size=columns)
    newer = st.lists(values | st.just(UNCHANGED), min_size=columns, max_size=columns)
    none, old_tags = st.none(), st.sampled_from("KO")
    return st.one_of(
        st.tuples(st.just("I"), row, none, st.just("")),
        st.tuples(st.just("U"), newer, none, st.just("")),
        st.tuples(st.just("U"), newer, row, old_tags),
        st.tuples(st.just("D"), none, row, old_tags),
    )


#: Number of columns, and messages of rows with so many.
batches = st.one_of(
    *(st.tuples(st.just(columns), st.lists(_row_messages(columns), max_size=12)) for columns in range(6))
)


def cell(table: cells.Cells, column: int, row: int) -> bytes | int | None:
    return UNCHANGED if table.length[column, row] == UNCHANGED else table.text(column, row)


def row_of(table: cells.Cells, row: int) -> list[bytes | int | None]:
    return [cell(table, column, row) for column in range(table.column_count)]


@settings(max_examples=examples(100), deadline=None)
@given(batch=batches)
def test_what_was_sent_is_what_is_found(batch) -> None:
    columns, rows = batch
    data, lengths = joined([message(*row) for row in rows])
    changes = split_changes(data, lengths, columns)
    assert bytes(changes.tag).decode() == "".join(row[0] for row in rows)
    assert changes.old.row_count == sum(row[2] is not None for row in rows)
    for number, (_, new, old, old_tag) in enumerate(rows):
        assert row_of(changes.new, number) == (new if new is not None else [None] * columns)
        assert changes.old_tag[number] == (ord(old_tag) if old_tag else 0)
        assert (changes.old_row[number] >= 0) == (old is not None)
        if old is not None:
            assert row_of(changes.old, int(changes.old_row[number])) == old


@settings(max_examples=examples(150), deadline=None)
@given(batch=batches, data=st.data())
def test_broken_messages_raise_decode_errors_and_are_never_read_past(batch, data) -> None:
    columns, rows = batch
    raw, lengths = joined([message(*row) for row in rows])
    broken = bytearray(raw)
    for _ in range(data.draw(st.integers(0, 3))):
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(
                st.sampled_from(b"\x00\x01\x7f\xffIUDKONntubx")
            )
    cut = data.draw(st.integers(0, min(3, len(broken))))
    if cut and len(lengths) and lengths[-1] >= cut:
        del broken[len(broken) - cut :]
        lengths[-1] -= cut
    compiled = outcome(bytes(broken), lengths, columns)
    with wires.interpreted(tuples):  # where NumPy checks every index
        assert outcome(bytes(broken), lengths, columns) == compiled


@settings(max_examples=examples(150), deadline=None)
@given(raw=st.binary(max_size=60), parts=st.lists(st.integers(0, 30), max_size=4), columns=st.integers(0, 3))
def test_arbitrary_bytes_raise_only_decode_errors(raw: bytes, parts: list[int], columns: int) -> None:
    lengths = np.array([*parts, max(len(raw) - sum(parts), 0)], np.uint32)
    compiled = outcome(raw, lengths, columns)
    with wires.interpreted(tuples):
        assert outcome(raw, lengths, columns) == compiled


def outcome(data: bytes, lengths: np.ndarray, columns: int) -> object:
    try:
        changes = split_changes(data, lengths, columns)
    except DecodeError as error:
        return str(error)
    for table in (changes.new, changes.old):
        has_text = table.length >= 0
        assert (table.start[has_text] + table.length[has_text] <= len(data)).all()
        assert (table.start >= 0).all()
    return changes.tag.tolist(), changes.new.length.tolist(), changes.old.length.tolist()


INSERT_AB = message("I", [b"a", b"b"])


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (INSERT_AB + b"x", "has bytes behind its end"),
        (INSERT_AB[:-1], "ends in the middle of a value"),
        (INSERT_AB[:-3], "ends in the middle of a value"),
        (message("I", [b"a", b"b", None]), "has another number of columns than its relation"),
        (b"T" + INSERT_AB[1:], "has a tag that no row message has"),
        (INSERT_AB.replace(b"N", b"X"), "has a tag that no row message has"),
        (message("U", [b"a", b"b"], [b"a", None], "Z"), "has a tag that no row message has"),
        (INSERT_AB.replace(b"t", b"b"), "has a column in binary form, which was not asked for"),
        (INSERT_AB.replace(b"t", b"z"), "has a column of unknown kind"),
        (INSERT_AB.replace(b"\0\0\0\1", b"\xff\xff\xff\xff"), "ends in the middle of a value"),
        (message("D", None, [b"a", UNCHANGED], "O"), "has an unchanged value outside the new row of an update"),
        (b"I\0\0\0\1N\0", "is too short for 2 columns"),
    ],
)
def test_each_defect_is_named(raw: bytes, said: str) -> None:
    with pytest.raises(DecodeError) as error:
        split_changes(INSERT_AB + raw, np.array([len(INSERT_AB), len(raw)], np.uint32), 2)
    assert error.value.message.startswith(f"row message 1 of {len(raw)} bytes {said}; it begins {raw[:1].hex()}")
    assert error.value.hint


def test_a_row_that_an_update_brings_into_a_row_filter_has_all_its_values() -> None:
    raw = message("I", [b"a", UNCHANGED])
    with pytest.raises(DecodeError, match="row message 1 inserts a row without a large value") as error:
        split_changes(INSERT_AB + raw, np.array([len(INSERT_AB), len(raw)], np.uint32), 2)
    assert error.value.hint is not None
    assert "REPLICA IDENTITY FULL" in error.value.hint


def test_an_error_shows_the_frame_of_a_message_and_no_value_of_its_row() -> None:
    raw = message("I", [b"Jane", b"Doe"])[:-1]
    with pytest.raises(DecodeError) as error:
        split_changes(raw, np.array([len(raw)], np.uint32), 2)
    assert error.value.message.endswith(f"; it begins {raw[:13].hex(' ')}")
    assert b"J" not in raw[:13]


def test_lengths_must_add_up() -> None:
    with pytest.raises(DecodeError, match="1 row messages have 5 bytes by their lengths, but 20 are there"):
        split_changes(INSERT_AB, np.array([5], np.uint32), 2)


def test_wrong_lengths_cannot_ask_for_much_memory() -> None:
    with pytest.raises(DecodeError, match="too short for 1600 columns"):
        split_changes(b"D" * 80_000, np.full(10_000, 8, np.uint32), 1600)


def test_no_messages_are_no_changes() -> None:
    changes = split_changes(b"", np.empty(0, np.uint32), 3)
    assert (changes.new.row_count, changes.old.row_count, len(changes.tag)) == (0, 0, 0)
    assert fill_unchanged(changes, np.empty(0, np.int32)).tolist() == []


def test_a_bytearray_serves_as_well() -> None:
    changes = split_changes(bytearray(INSERT_AB), np.array([len(INSERT_AB)], np.uint32), 2)
    assert row_of(changes.new, 0) == [b"a", b"b"]
    assert not changes.new.data.flags.writeable


def test_tags_are_those_of_the_protocol() -> None:
    assert tuple(b"IUDKO") == (INSERT, UPDATE, DELETE, KEY, OLD)
    assert (NULL, UNCHANGED) == (-1, -2)


@settings(max_examples=examples(100), deadline=None)
@given(batch=batches, data=st.data())
def test_unchanged_cells_take_the_value_of_the_version_before(batch, data) -> None:
    columns, rows = batch
    previous = [data.draw(st.integers(-1, number - 1)) for number in range(len(rows))]
    wanted: list[list] = []
    for number, (_, new, old, old_tag) in enumerate(rows):
        before = previous[number]
        has_before = before >= 0 and rows[before][0] != "D"
        source = old if old_tag == "O" else wanted[before] if has_before else [UNCHANGED] * columns
        wanted.append(
            [one if one != UNCHANGED else source[at] for at, one in enumerate(new)] if new else [None] * columns
        )
    raw, lengths = joined([message(*row) for row in rows])
    changes = split_changes(raw, lengths, columns)
    left = fill_unchanged(changes, np.array(previous, np.int32))
    assert [row_of(changes.new, number) for number in range(len(rows))] == wanted
    assert left.tolist() == [number for number, row in enumerate(wanted) if UNCHANGED in row]
    assert left.dtype == np.int32


def test_an_update_after_an_update_that_stays_open_stays_open() -> None:
    raw, lengths = joined(
        [message("U", [b"1", UNCHANGED]), message("U", [b"1", UNCHANGED]), message("I", [b"2", b"x"])]
    )
    changes = split_changes(raw, lengths, 2)
    assert fill_unchanged(changes, np.array([-1, 0, -1], np.int32)).tolist() == [0, 1]


def test_a_long_value_is_found_whole() -> None:
    value = bytes(range(256)) * 5000
    raw, lengths = joined([message("I", [value, None])])
    assert row_of(split_changes(raw, lengths, 2).new, 0) == [value, None]
    assert struct.unpack(">i", raw[9:13]) == (len(value),)


def test_operations_are_counted_by_their_tags() -> None:
    messages = [b"I--", b"U", b"U-----", b"D--", b"I", b"I-"]
    data = np.frombuffer(b"".join(messages), np.uint8)
    lengths = np.array([len(message) for message in messages], np.uint32)
    assert tuples.operations(data, lengths) == Operations(inserts=3, updates=2, deletes=1)
    assert tuples.operations(data[:0], lengths[:0]) == Operations()
