from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.source.catalog.table import Leaf, SourceTable, TableKind
from kuvasz.sync.rules import copy_plan


@given(pages=st.integers(0, 10**9), toast=st.integers(0, 10**13), target=st.integers(10**9, 10**12))
def test_ranges_adjoin_cover_everything_and_are_of_one_size(pages, toast, target):
    ranges = copy_plan.plan_ranges(pages, toast, target)
    assert ranges[0][0] == 0
    assert ranges[-1][1] is None
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ranges))
    sizes = [(pages if end is None else end) - start for start, end in ranges]
    assert max(sizes) - min(sizes) <= 1
    if len(ranges) < pages:
        assert len(ranges) == max(1, -(-(pages * 8192 + toast) // target))


def test_a_table_without_pages_is_one_range():
    assert copy_plan.plan_ranges(0, 0, 1) == [(0, None)]


def test_toast_counts_but_a_page_is_never_cut():
    assert copy_plan.plan_ranges(4, 0, 8192 * 2) == [(0, 2), (2, None)]
    assert copy_plan.plan_ranges(4, 8192 * 4, 8192 * 2) == [(0, 1), (1, 2), (2, 3), (3, None)]
    assert len(copy_plan.plan_ranges(4, 10**9, 8192)) == 4


@pytest.mark.parametrize("sizes", [(-1, 0, 1), (0, -1, 1), (0, 0, 0)])
def test_sizes_that_are_none_are_refused(sizes):
    with pytest.raises(ValueError, match="no sizes"):
        copy_plan.plan_ranges(*sizes)


def source_table(pages, leaves=()):
    columns = (
        Column(name="b", pg_type=PgType(oid=23, name="int4")),
        Column(name="a", pg_type=PgType(oid=25, name="text")),
    )
    relation = Relation(
        oid=1, table=TableName(schema="s", name="root"), identity=ReplicaIdentity.DEFAULT, columns=columns
    )
    kind = TableKind.PARTITIONED if leaves else TableKind.TABLE
    return SourceTable(
        relation=relation, kind=kind, pages=pages, page_bytes=8192, toast_bytes=0, row_estimate=None, primary_key=(),
        identity_index=(), generated=(), leaves=tuple(leaves),
    )  # fmt: skip


def leaf(name, pages):
    return Leaf(
        oid=2,
        table=TableName(schema="s", name=name),
        pages=pages,
        page_bytes=8192,
        toast_bytes=0,
        row_estimate=None,
    )


def test_a_partitioned_table_is_read_leaf_by_leaf_largest_range_first():
    table = source_table(7, [leaf("small", 1), leaf("large", 6), leaf("empty", 0)])
    ranges = copy_plan.copy_ranges(table, conninfo="", snapshot_name="1", target_bytes=8192 * 3)
    assert [(r.table.name, r.first_block, r.end_block) for r in ranges] == [
        ("large", 0, 3), ("large", 3, None), ("small", 0, None), ("empty", 0, None),
    ]  # fmt: skip
    assert {r.columns for r in ranges} == {("b", "a")}
    assert sum(r.size for r in ranges) == 7 * 8192


def test_a_table_of_its_own_is_one_heap():
    ranges = copy_plan.copy_ranges(source_table(4), conninfo="", snapshot_name="1", target_bytes=8192 * 2)
    assert [(r.table.name, r.first_block, r.end_block, r.size) for r in ranges] == [
        ("root", 0, 2, 16384), ("root", 2, None, 16384),
    ]  # fmt: skip


def test_a_small_table_is_one_of_few_bytes_with_all_that_hangs_on_it():
    assert copy_plan.is_small(source_table(0))
    assert copy_plan.is_small(source_table(128))
    assert not copy_plan.is_small(source_table(129))
    assert not copy_plan.is_small(dataclasses.replace(source_table(128), toast_bytes=1))
    assert not copy_plan.is_small(dataclasses.replace(source_table(128), pages=None)), "nobody knows"


def test_a_table_of_unknown_size_is_not_cut():
    table = dataclasses.replace(source_table(4), toast_bytes=None)
    with pytest.raises(ValueError, match=r"^no sizes: s.root: pages=4 toast_bytes=None$"):
        copy_plan.copy_ranges(table, conninfo="", snapshot_name="1", target_bytes=8192)
