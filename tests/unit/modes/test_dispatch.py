from __future__ import annotations

import pytest

from kuvasz.model import TableType
from kuvasz.modes import dispatch, keyless, system_columns
from kuvasz.modes.shape import Shape
from tests.support.changes import insert, update
from tests.support.shapes import (
    APPEND,
    CHANGELOG,
    CLONE,
    HISTORY,
    KEYLESS,
    apply,
    apply_transaction,
    pairs,
    rows,
    shape,
)
from tests.support.wires import copy_line

BAG = shape(KEYLESS, TableType.CLONE)
LINES = copy_line([b"1", b"2", b"x"]) + copy_line([b"2", None, b"y"])


@pytest.mark.parametrize("made", [CLONE, APPEND, BAG], ids=["clone", "append", "bag"])
def test_copied_rows_of_types_without_columns_of_their_own_stay_as_they_are(made: Shape) -> None:
    assert rows(dispatch.apply_copy(made, LINES, 7).rows) == [("eu", 1, 2, "x"), ("eu", 2, None, "y")]


def test_copied_rows_of_a_changelog_stand_at_the_snapshot() -> None:
    copied = dispatch.apply_copy(CHANGELOG, LINES, 7).rows
    assert copied.column(system_columns.LSN).to_pylist() == [7, 7]


def test_copied_rows_of_a_history_are_open() -> None:
    copied = dispatch.apply_copy(HISTORY, LINES, 7).rows
    assert copied.column(system_columns.DELETED).to_pylist() == [False, False]


def test_a_row_of_a_bag_is_its_own_key() -> None:
    copied = dispatch.apply_copy(BAG, LINES, 7)
    assert pairs(copied.keys) == pairs(keyless.row_keys(BAG, copied.rows))


def test_of_two_changes_of_a_key_a_clone_keeps_one_and_an_append_table_both() -> None:
    changes = insert(1, 1), update(1, 2)
    assert [row[2] for row in rows(apply(*changes, to=CLONE).rows)] == [2]
    assert [row[2] for row in rows(apply(*changes, to=APPEND).rows)] == [1, 2]


@pytest.mark.parametrize(
    ("made", "column"),
    [(CHANGELOG, system_columns.ORDINAL), (HISTORY, system_columns.START)],
    ids=["changelog", "history"],
)
def test_types_with_columns_of_their_own_fill_them(made: Shape, column: str) -> None:
    applied = apply_transaction(insert(1, 1), insert(2, 2), to=made)
    assert applied.rows.column(column).null_count == 0
    assert applied.rows.num_rows == 2
