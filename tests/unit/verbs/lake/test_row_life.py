"""What snapshots did to rows, of tables of a few words."""

from __future__ import annotations

from typing import Any

import pytest

from kuvasz.model import TableType
from kuvasz.verbs.lake.row_life import LakeRow, by_row, lives
from kuvasz.verbs.lake.row_places import Place


def row(file: str, sid: str | None = None, member: str | None = None, **values: Any) -> LakeRow:
    return LakeRow(place=Place(file=file, position=0), sid=sid, member=member, values=values)


def told(*there: list[LakeRow], kind: TableType = TableType.CLONE, key: bool = True, whole: bool = True) -> list[Any]:
    return [(one.step, str(one.what), one.changed) for one in lives(there, kind, has_key=key, is_whole=whole)]


def test_a_clone_s_row_comes_changes_moves_and_goes() -> None:
    there = [row("a", n=1)], [row("a", n=1)], [row("b", n=2)], [row("c", n=2)], []
    assert told(*there) == [(0, "came", ()), (2, "changed", ("n",)), (3, "moved", ()), (4, "went", ())]


def test_what_the_oldest_snapshot_has_came_before_if_earlier_ones_are_gone() -> None:
    assert told([row("a", n=1)], [], whole=False) == [(0, "there", ()), (1, "went", ())]


def test_what_is_no_number_does_not_change() -> None:
    assert told([row("a", n=float("nan"))], [row("b", n=float("nan"))]) == [(0, "came", ()), (1, "moved", ())]


@pytest.mark.parametrize("one", [{"sid": "eu"}, {"member": "17"}])
def test_rows_of_two_sources_or_members_are_not_versions_of_each_other(one: dict[str, str]) -> None:
    there = [row("a", n=1, **one)], [row("b", n=2)]
    assert told(*there) == [(0, "came", ()), (1, "came", ()), (1, "went", ())]
    parts = by_row(lives(there, TableType.CLONE, has_key=True, is_whole=True))
    assert [[str(one.what) for one in events] for events in parts.values()] == [["came"], ["came", "went"]]


def test_a_version_of_a_history_ends_and_another_one_comes() -> None:
    begun, ended, next_one = (
        row(file, kvsz_start=start, kvsz_end=end) for file, start, end in (("a", 1, 99), ("b", 1, 5), ("b2", 5, 99))
    )
    assert told([begun], [ended, next_one], kind=TableType.HISTORY) == [
        (0, "came", ()), (1, "changed", ("kvsz_end",)), (1, "came", ()),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "key"), [(TableType.APPEND, True), (TableType.CLONE, False)])
def test_rows_of_other_tables_are_no_versions(kind: TableType, *, key: bool) -> None:
    assert told([row("a", n=1)], [row("b", n=2)], kind=kind, key=key) == [
        (0, "came", ()), (1, "came", ()), (1, "went", ()),
    ]  # fmt: skip
    assert told([row("a", n=1)], [row("b", n=1)], kind=kind, key=key)[1:] == [(1, "moved", ())]
