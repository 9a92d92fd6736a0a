"""What happened to a source table since it was last looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from kuvasz.evolve import column_notes, known
from kuvasz.evolve.changes import Change, ChangeKind, compare
from kuvasz.model import Uniqueness
from tests.support.source_table import BIGINT, INT, NUMERIC, TEXT, VARCHAR, SourceTable, numeric


def changes(make: Callable[[SourceTable], object], table: SourceTable | None = None) -> list[Change]:
    table = table or SourceTable()
    before = known.of(table.catalog(), {})
    make(table)
    return compare(before, table.catalog())


def retyped(table: SourceTable, attnum: int, kind: object, typmod: int = -1, *, is_rewritten: bool = True) -> None:
    table.alter(attnum, pg_type=kind, typmod=typmod)
    table.file += is_rewritten


@pytest.mark.parametrize(
    ("make", "expected", "is_copied"),
    [
        (lambda t: None, [], False),
        (lambda t: t.add("c"), [(ChangeKind.ADD, "c")], False),
        (lambda t: t.add("c", default="{5}"), [(ChangeKind.ADD, "c")], True),
        (lambda t: t.add("c", is_volatile=True), [(ChangeKind.ADD, "c")], True),
        (lambda t: (t.add("c"), t.alter(4, has_default=True)), [(ChangeKind.ADD, "c")], False),
        (lambda t: (t.add("c"), t.alter(4, is_nullable=False)), [(ChangeKind.ADD, "c")], False),
        (lambda t: (t.add("c", default="{5}"), t.alter(4, has_default=False)), [(ChangeKind.ADD, "c")], True),
        (lambda t: (t.add("c", default="{5}"), t.alter(4, has_default=False, missing=None), t.rewrite()),
         [(ChangeKind.ADD, "c")], True),
        (lambda t: t.drop(2), [(ChangeKind.DROP, "n")], False),
        (lambda t: t.alter(2, name="m"), [(ChangeKind.RENAME, "m")], False),
        (lambda t: (t.drop(2), t.add("n")), [(ChangeKind.ADD, "n"), (ChangeKind.DROP, "n")], True),
        (lambda t: (t.drop(2), t.alter(3, name="n")), [(ChangeKind.RENAME, "n"), (ChangeKind.DROP, "n")], False),
        (lambda t: retyped(t, 2, BIGINT), [(ChangeKind.RETYPE, "n")], True),
        (lambda t: retyped(t, 3, VARCHAR, 14, is_rewritten=False), [(ChangeKind.RETYPE, "name")], False),
        (lambda t: retyped(t, 3, VARCHAR, 14), [(ChangeKind.RETYPE, "name")], True),
        (lambda t: t.rewrite(), [], False),
        (lambda t: t.alter(2, is_nullable=False), [], False),
        (lambda t: (t.rewrite(), t.alter(2)), [(ChangeKind.REWRITE, "n")], True),
        (lambda t: t.alter(1, facts=("a", "b")), [], False),
        (lambda t: (t.add("c"), t.rewrite()), [(ChangeKind.ADD, "c")], True),
        (lambda t: (t.add("c"), t.drop(4)), [], False),
        (lambda t: t.alter(2, missing="{7}"), [(ChangeKind.REWRITE, "n")], True),
        (lambda t: t.rekey(), [(ChangeKind.REKEY, "id")], True),
        (lambda t: (t.rekey(), retyped(t, 1, BIGINT)), [(ChangeKind.REKEY, "id"), (ChangeKind.RETYPE, "id")], True),
    ],
)  # fmt: skip
def test_changes(
    make: Callable[[SourceTable], object], expected: list[tuple[ChangeKind, str]], is_copied: bool
) -> None:
    found = changes(make)
    assert sorted((change.kind.value, change.name) for change in found) == sorted((k.value, n) for k, n in expected)
    assert any(change.why_copy for change in found) == is_copied
    assert all(change.name in change.describe() for change in found)


def test_a_generated_column_that_becomes_an_ordinary_one_has_values() -> None:
    table = SourceTable()
    attnum = table.add("total")
    hidden = table.live.pop(attnum)
    before = known.of(table.catalog(), {})
    table.live[attnum] = hidden
    (change,) = compare(before, table.catalog())
    assert change.why_copy == "it was there before, generated or left out"


@pytest.mark.parametrize(
    ("old", "new", "is_copied"),
    [
        ((NUMERIC, numeric(8, 2)), (NUMERIC, numeric(12, 2)), False),
        ((NUMERIC, numeric(8, 2)), (NUMERIC, -1), False),
        ((NUMERIC, numeric(8, 2)), (NUMERIC, numeric(12, 4)), True),
        ((NUMERIC, -1), (NUMERIC, numeric(8, 2)), True),
        ((VARCHAR, 14), (VARCHAR, 24), False),
        ((VARCHAR, 14), (TEXT, -1), False),
        ((VARCHAR, 14), (VARCHAR, -1), False),
        ((VARCHAR, 24), (VARCHAR, 14), True),
        ((VARCHAR, -1), (VARCHAR, 14), True),
        ((TEXT, -1), (VARCHAR, -1), True),
        ((INT, -1), (BIGINT, -1), True),
    ],
)
def test_without_a_file_only_what_keeps_every_value_is_trusted(old: tuple, new: tuple, is_copied: bool) -> None:
    table = SourceTable(("id", INT), ("x", old[0]))
    table.alter(2, typmod=old[1])
    table.file = 0
    (change,) = changes(lambda t: retyped(t, 2, new[0], new[1], is_rewritten=False), table)
    assert bool(change.why_copy) == is_copied


def test_nothing_is_made_of_what_an_earlier_version_did_not_write() -> None:
    table = SourceTable()
    (old,) = column_notes.parse(
        {column_notes.PREFIX + "eu": '{"oid": 100, "columns": {"id": 1, "n": 2, "name": 3}}'}, "t"
    ).values()
    assert compare(old, table.catalog()) == []
    table.alter(2, name="m")
    assert [change.kind for change in compare(old, table.catalog())] == [ChangeKind.RENAME]
    table.add("c")
    table.alter(4, has_default=True)
    assert [bool(change.why_copy) for change in compare(old, table.catalog())] == [False, True]
    assert dataclasses.replace(old, oid=1).oid == 1


@pytest.mark.parametrize(("facts", "expected"), [(("a", "b", "c"), []), (("b", "c"), [ChangeKind.REDEFINE]),
                                                 ((), [ChangeKind.REDEFINE])])  # fmt: skip
def test_what_values_read_as_is_kept_by_labels_that_are_added_alone(
    facts: tuple[str, ...], expected: list[ChangeKind]
) -> None:
    table = SourceTable()
    table.alter(2, facts=("a", "b"))
    found = changes(lambda t: t.alter(2, facts=facts), table)
    assert [change.kind for change in found] == expected
    assert all(change.why_copy for change in found)


def test_a_partitioned_table_is_rewritten_with_its_partitions() -> None:
    table = SourceTable()
    before = dataclasses.replace(table.catalog(), file=0, leaf_files=1)
    table.alter(2)
    for files, is_rewritten in ((1, False), (2, True), (0, False)):
        after = dataclasses.replace(table.catalog(), file=0, leaf_files=files)
        found = compare(known.of(before, {}), after)
        assert [change.kind for change in found] == [ChangeKind.REWRITE] * is_rewritten


def listed(table: SourceTable, *hidden: int) -> None:
    table.hidden = frozenset(hidden)
    table.list_version += 1


@pytest.mark.parametrize(
    ("before", "make", "copied"),
    [
        ((2,), lambda t: None, []),
        ((2,), lambda t: (t.add("c"), listed(t, 2, 4)), ["id", "name"]),
        ((2,), listed, ["id", "n", "name"]),
        ((), lambda t: listed(t, 2), ["id", "name"]),
    ],
)
def test_what_messages_may_have_left_out_is_copied(
    before: tuple[int, ...], make: Callable[[SourceTable], object], copied: list[str]
) -> None:
    table = SourceTable()
    listed(table, *before)
    remembered = known.of(table.catalog(), {})
    make(table)
    assert [change.name for change in compare(remembered, table.catalog()) if change.why_copy] == copied


def test_a_list_that_begins_with_the_copy_leaves_nothing_out() -> None:
    table = SourceTable()
    remembered = known.of(table.catalog(), {})
    listed(table, 2)
    assert compare(remembered, table.catalog()) == []


def test_what_rows_from_before_a_column_show_is_the_same_until_they_are_rewritten() -> None:
    table = SourceTable()
    table.add("c", default="{5}")
    before = known.of(table.catalog(), {})
    other = dataclasses.replace(table.live[4], name="d", missing="{7}")
    table.live[4] = other
    kinds = [ChangeKind.RENAME, ChangeKind.REWRITE]
    assert [change.kind for change in compare(before, table.catalog())] == kinds, "of another primary"
    unknown = dataclasses.replace(before.columns[4], missing=None)
    earlier = dataclasses.replace(before, columns={**before.columns, 4: unknown})
    assert [change.kind for change in compare(earlier, table.catalog())] == [ChangeKind.RENAME], "nobody wrote it"
    table.live[4] = dataclasses.replace(other, missing=None)
    table.rewrite()
    assert [change.kind for change in compare(before, table.catalog())] == [ChangeKind.RENAME], "as VACUUM FULL does"


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        (Uniqueness(30, 20, 21), Uniqueness(30, 20, 22)),  # REINDEX, CLUSTER, VACUUM FULL, TRUNCATE
        (Uniqueness(30, 20, 21), Uniqueness(30, 22, 22)),  # REINDEX CONCURRENTLY
        (Uniqueness(30, 20, 21), Uniqueness(31, 22, 21)),  # ALTER TYPE that leaves the values
        (Uniqueness(0, 20, 21), Uniqueness(31, 20, 21)),  # ADD CONSTRAINT … USING INDEX
        (Uniqueness(30, 20, 0), Uniqueness(30, 20, 0)),  # of a partitioned table
        (Uniqueness(), Uniqueness(30, 20, 21)),  # an earlier version of kuvasz did not write it
        (Uniqueness(30, 20, 21), Uniqueness()),  # the map names the key
    ],
)
def test_a_key_that_was_one_all_the_time_is_no_change(earlier: Uniqueness, now: Uniqueness) -> None:
    def make(table: SourceTable) -> None:
        table.uniqueness = now

    table = SourceTable()
    table.uniqueness = earlier
    assert changes(make, table) == []


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        (Uniqueness(0, 20, 21), Uniqueness(0, 22, 23)),
        (Uniqueness(30, 20, 0), Uniqueness(31, 22, 0)),
        (Uniqueness(30, 20, 21), Uniqueness(31, 22, 23)),
    ],
)
def test_a_key_that_there_may_not_have_been_has_the_rows_copied(earlier: Uniqueness, now: Uniqueness) -> None:
    def make(table: SourceTable) -> None:
        table.uniqueness = now

    table = SourceTable()
    table.uniqueness = earlier
    (change,) = changes(make, table)
    assert (change.describe(), bool(change.why_copy)) == ("column id was made a key anew", True)
