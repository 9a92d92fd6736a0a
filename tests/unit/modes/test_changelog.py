from __future__ import annotations

import datetime

import numpy as np
import pytest

from kuvasz.errors import InternalError
from kuvasz.model import TableType
from kuvasz.modes import changelog, dispatch
from kuvasz.modes.transaction_facts import Facts
from tests.support.changes import SAME, delete, insert, update
from tests.support.shapes import CHANGELOG, KEYLESS, apply_transaction, shape
from tests.support.wires import copy_line, message

AT = datetime.datetime(2000, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)


def test_every_event_is_a_row_with_its_facts() -> None:
    rows = apply_transaction(insert(1, 1, "a"), update(1, 2), delete(1), ordinal=40).rows.to_pylist()
    assert [(row["_op"], row["id"], row["n"], row["body"]) for row in rows] == [
        ("I", 1, 1, "a"), ("U", 1, 2, "b"), ("D", 1, None, None),
    ]  # fmt: skip
    assert {(row["sid"], row["_lsn"], row["_xid"], row["_commit_ts"]) for row in rows} == {("eu", 100, 7, AT)}
    assert [row["_ordinal"] for row in rows] == [40, 41, 42]


def test_a_changed_key_stands_beside_the_row() -> None:
    rows = apply_transaction(insert(1), update(5, 2, old=1), update(5, 3, old=5), update(5, 4)).rows.to_pylist()
    assert [row["_old_key"] for row in rows] == [None, [("id", "1")], None, None]


def test_without_a_key_the_old_row_is_it() -> None:
    old = [b"1", None, b"big"]
    found = apply_transaction(
        message("U", [b"1", b"2", SAME], old, "O"), message("D", old=old, old_tag="O"),
        to=shape(KEYLESS, TableType.CHANGELOG),
    ).rows.to_pylist()  # fmt: skip
    assert [(row["_op"], row["id"], row["n"], row["body"]) for row in found] == [
        ("U", 1, 2, "big"), ("D", 1, None, "big"),
    ]  # fmt: skip
    assert found[0]["_old_key"] == [("id", "1"), ("n", None), ("body", "big")]


def test_rows_that_wait_have_their_facts_already() -> None:
    aside = apply_transaction(insert(1, 1, "a"), update(2, 2, SAME)).aside
    assert aside is not None
    assert aside.rows.column("_op").to_pylist() == ["I", "U"]
    assert aside.rows.column("_ordinal").to_pylist() == [0, 1]


def test_a_truncation_has_nothing_but_its_facts() -> None:
    (row,) = changelog.apply_truncations(
        CHANGELOG, Facts.of(np.array([[100, 1_000_000, 7, 1, 3]], np.int64))
    ).to_pylist()
    assert row == {
        "sid": "eu", "id": None, "n": None, "body": None, "_op": "T", "_lsn": 100, "_ordinal": 3, "_xid": 7,
        "_commit_ts": AT, "_old_key": None,
    }  # fmt: skip


def test_copied_rows_have_the_lsn_of_their_snapshot() -> None:
    (row,) = dispatch.apply_copy(CHANGELOG, copy_line([b"1", None, b"x"]), 900).rows.to_pylist()
    assert (row["_op"], row["_lsn"], row["_ordinal"], row["_commit_ts"], row["id"]) == ("R", 900, None, None, 1)


def test_without_facts_there_is_no_changelog() -> None:
    with pytest.raises(InternalError, match="without the facts"):
        dispatch.apply_changes(CHANGELOG, np.empty(0, np.uint8), np.empty(0, np.uint32))
