"""One target in memory: its columns, its rule, its positions and its failures."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import OtherRule, TableError
from kuvasz.lake.memory.source_notes import MemorySourceNotes
from kuvasz.lake.memory.table import MemoryTable
from kuvasz.model import Column, SourcePosition, TableType
from kuvasz.ports import Gap
from tests.support.changes import ITEMS, TARGET, TEXT, feed, relation, target

HERE = SourcePosition(lsn=1000)
FILTERED = {"filter": "n > 1"}


@pytest.fixture
def table() -> MemoryTable:
    """A clone that a source was copied into."""
    return made(TableType.CLONE)


def made(kind: TableType) -> MemoryTable:
    table = MemoryTable(target(table_type=kind), ITEMS, MemorySourceNotes())
    table.settle_rule(target(table_type=kind), feed())
    table.make_visible({"eu": HERE})
    table.note_rule(feed())
    return table


def test_columns_that_are_lacking_are_added_and_no_other_changes(table: MemoryTable) -> None:
    before = table.schema
    table.add_columns(ITEMS)
    assert table.schema is before
    table.add_columns(relation(Column(name="extra", pg_type=TEXT)))
    assert [field.name for field in table.schema.fields] == ["sid", "id", "n", "body", "extra"]
    ids = [field.field_id for field in table.schema.fields]
    assert len(set(ids)) == len(ids)
    assert table.schema.schema_id != before.schema_id


def test_a_shape_is_made_once_for_each_source_until_columns_change(table: MemoryTable) -> None:
    first = table.shape(feed(), ITEMS)
    assert table.shape(feed(), ITEMS) is first
    assert table.shape(feed("us"), ITEMS) is not first
    table.add_columns(relation(Column(name="extra", pg_type=TEXT)))
    assert table.shape(feed(), ITEMS) is not first


def test_another_rule_has_a_clone_copied_again(table: MemoryTable) -> None:
    assert table.settle_rule(target(), feed()) == ""
    why = table.settle_rule(dataclasses.replace(target(), **FILTERED), feed())
    assert "filter" in why
    assert table.positions == {}
    assert table.settle_rule(dataclasses.replace(target(), **FILTERED), feed()) == "", (
        "a copy is about to make it right"
    )


def test_what_keeps_its_rows_is_refused_another_rule() -> None:
    table = made(TableType.APPEND)
    with pytest.raises(OtherRule):
        table.settle_rule(dataclasses.replace(target(table_type=TableType.APPEND), **FILTERED), feed())
    assert table.positions == {"eu": HERE}


def test_rows_that_a_repair_will_keep_count_even_without_a_position() -> None:
    table = made(TableType.APPEND)
    table.forget_position("eu")
    other = dataclasses.replace(target(table_type=TableType.APPEND), **FILTERED)
    table._notes.open_gap(TARGET, "eu", Gap(from_lsn=1, noticed_us=2))
    with pytest.raises(OtherRule):
        table.settle_rule(other, feed())


def test_a_position_moves_with_a_change_or_where_there_was_none(table: MemoryTable) -> None:
    assert table.make_visible({"eu": SourcePosition(lsn=2000)}) is None
    assert table.positions["eu"] == HERE
    table.make_visible({"us": SourcePosition(lsn=5, published="7:1")})
    assert table.positions["us"].lsn == 5
    assert table._notes.published(TARGET, "us") == "7:1"


def test_a_dropped_position_is_told_and_its_era_begins_behind_a_gap(table: MemoryTable) -> None:
    assert table.forget_position("eu") == HERE
    assert table.forget_position("eu") is None
    assert table.era.position_resets["eu"] == 2


def test_a_failed_table_is_resumed_by_who_knows_why_it_failed(table: MemoryTable) -> None:
    error = TableError("a value does not fit")
    table.fail(error)
    table.resume(TableError("another"))
    table.resume(None)
    assert table.era.error is error
    table.resume(error)
    assert table.era.error is None
    assert table.era.accepted == {"eu": 1000}


def test_rows_are_told_apart_by_sid_and_member() -> None:
    table = MemoryTable(target(), ITEMS, MemorySourceNotes())
    assert table.sid(feed()) == "eu"
    assert table.sid(feed("eu/17", sid="eu")) != "eu"
    plain = MemoryTable(target(has_sid=False), ITEMS, MemorySourceNotes())
    assert plain.sid(feed()) is None
