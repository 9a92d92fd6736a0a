"""The policy alone: what is merged, what is left, and what a row costs on its way, simulated over days."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.lake.files.files import FileEntry
from kuvasz.lake.maintenance import replace_files
from kuvasz.lake.maintenance.compaction_policy import FILES_PER_PASS, FileFacts, FileGroup, Policy, batches, one_pass
from kuvasz.model import TableType
from kuvasz.ports import Target
from tests.support.lake_table import World

MB = 1 << 20
POLICY = Policy(target_bytes=128 * MB, min_files=8, max_dead_share=0.3)


def facts(number: int, size: int, *, rows: int = 1000, dead: int = 0, key: object = "eu") -> FileFacts:
    return FileFacts(number=number, key=key, rows=rows, dead=dead, size=size)


def numbers(groups: list[FileGroup]) -> list[tuple[int, ...]]:
    return [tuple(file.number for file in group.files) for group in groups]


def test_few_small_files_wait() -> None:
    assert POLICY.plan([facts(n, 50_000) for n in range(7)]) == []


def test_many_small_files_become_one() -> None:
    assert numbers(POLICY.plan([facts(n, 50_000) for n in range(9)])) == [tuple(range(9))]


def test_a_large_file_is_not_merged_with_small_ones() -> None:
    files = [facts(0, 30 * MB), *(facts(n, 50_000) for n in range(1, 10))]
    assert numbers(POLICY.plan(files)) == [tuple(range(1, 10))]


def test_smaller_ones_go_along_with_a_full_tier() -> None:
    files = [*(facts(n, 20 * MB) for n in range(8)), facts(8, 50_000)]
    assert numbers(POLICY.plan(files)) == [(0, 1, 2, 3, 4, 5), (6, 7, 8)]


def test_whole_files_are_left_alone_until_they_are_worn() -> None:
    whole = [facts(n, 100 * MB, dead=290) for n in range(20)]
    assert POLICY.plan(whole) == []
    assert numbers(POLICY.plan([*whole, facts(20, 100 * MB, dead=300)])) == [(20,)]


def test_keys_are_kept_apart() -> None:
    files = [facts(n, 50_000, key=("eu" if n % 2 else "us")) for n in range(16)]
    assert sorted(numbers(POLICY.plan(files))) == [tuple(range(0, 16, 2)), tuple(range(1, 16, 2))]
    assert POLICY.plan(files[:15]) == POLICY.plan([file for file in files[:15] if file.key == "us"])


def test_full_leaves_no_dead_row_and_no_two_files_that_fit_into_one() -> None:
    files = [facts(0, 100 * MB, dead=1), facts(1, 100 * MB), facts(2, 10), facts(3, 10, key="us"), facts(4, 20)]
    assert sorted(numbers(POLICY.plan(files, full=True))) == [(0, 2, 4)]
    assert POLICY.plan([facts(0, 100 * MB), facts(1, 10)], full=True) == []


def test_what_frees_most_comes_first() -> None:
    files = [facts(0, 100 * MB, dead=400), facts(1, 100 * MB, dead=900)]
    assert numbers(POLICY.plan(files)) == [(1, 0)] or numbers(POLICY.plan(files)) == [(0, 1)]
    files = [facts(0, 120 * MB, dead=400), facts(1, 120 * MB, dead=300), facts(2, 120 * MB, dead=500)]
    assert numbers(POLICY.plan(files))[0] == (2,)


@given(
    st.lists(
        st.tuples(st.integers(1, 300 * MB), st.integers(1, 10**6), st.floats(0, 1), st.sampled_from("ab")),
        max_size=60,
    ),
    st.booleans(),
)
def test_a_plan_is_never_senseless(drawn: list[tuple[int, int, float, str]], full: bool) -> None:
    files = [
        facts(n, size, rows=rows, dead=int(rows * share), key=key) for n, (size, rows, share, key) in enumerate(drawn)
    ]
    groups = POLICY.plan(files, full=full)
    chosen = [number for group in groups for number in (file.number for file in group.files)]
    assert len(chosen) == len(set(chosen))
    for group in groups:
        assert len({file.key for file in group.files}) == 1
        assert len(group.files) > 1 or group.files[0].dead
        assert group.live_bytes <= POLICY.target_bytes or len(group.files) == 1
    left = [file for file in files if file.number not in chosen]
    if full:
        assert all(file.dead == 0 for file in left)


def test_where_order_counts_only_neighbours_in_age_are_merged() -> None:
    """Numbers say how long a file is known, not how old its rows are; what stands between two keeps them apart."""
    sizes = {1: 50_000, 2: 50_000, 3: 100 * MB, 4: 50_000, 5: 50_000, 6: 50_000, 7: 20 * MB, 8: 50_000, 9: 50_000}
    files = [
        FileFacts(number=20 - age, key="eu", rows=10, dead=0, size=size, age=(age, "")) for age, size in sizes.items()
    ]
    policy = Policy(target_bytes=128 * MB, min_files=7, max_dead_share=0.3)
    merged = sorted(numbers(policy.plan(files)), reverse=True)
    assert merged == [(19, 18), (16, 15, 14), (12, 11)]
    assert sorted(numbers(policy.plan(files, full=True)), reverse=True) == [(19, 18), (16, 15, 14, 13, 12, 11)]
    others = [dataclasses.replace(file, age=None) for file in files]
    assert numbers(policy.plan(others)) == [(11, 12, 14, 15, 16, 18, 19)]


def test_a_pass_takes_so_many_files_worth_and_at_least_one() -> None:
    def groups(*sizes: int) -> list[list[FileGroup]]:
        return [[FileGroup(files=(facts(n, size),))] for n, size in enumerate(sizes)]

    assert len(one_pass(groups(50, 50, 50, 50, 50), 10)) == 1
    assert len(one_pass(groups(10, 10, 10, 10, 10), 10)) == 4
    assert len(one_pass(groups(1, 1, 1, 1, 1), 10)) == 5


def test_batches_hold_many_small_groups_or_a_large_one() -> None:
    groups = [FileGroup(files=(facts(n, size),)) for n, size in enumerate((100, 10, 10, 200, 10))]
    assert [[g.live_bytes for g in batch] for batch in batches(groups, 120)] == [[100, 10, 10], [200], [10]]


@pytest.mark.parametrize("size", [2_000, 20_000, 300_000])
def test_small_files_that_come_one_by_one_are_never_many(size: int) -> None:
    files: list[FileFacts] = []
    changed = rewritten = 0
    for number in range(4000):
        files.append(facts(number, size, rows=size))
        changed += size
        if number % 8 == 7:
            for group in POLICY.plan(files, only_small=True):
                files = [file for file in files if file not in group.files]
                files.append(facts(group.files[-1].number, group.live_bytes, rows=group.live_bytes))
                rewritten += group.live_bytes
        assert sum(file.live_bytes < POLICY.target_bytes / 2 for file in files) <= 24
    assert rewritten < 5 * changed


def test_what_is_small_is_merged_and_what_is_worn_waits_for_a_look_at_everything() -> None:
    files = [facts(0, 128 * MB, dead=400), facts(1, 128 * MB, dead=400), *(facts(n, 50_000) for n in range(2, 10))]
    assert numbers(POLICY.plan(files, only_small=True)) == [tuple(range(2, 10))]
    assert (0,) in numbers(POLICY.plan(files))


class Table:
    """A table under a stream: sizes and counts only."""

    def __init__(self, policy: Policy, seed: int = 1) -> None:
        self.policy = policy
        self.sizes: dict[int, tuple[int, int]] = {}  #: file -> bytes, rows
        self.dead: dict[int, int] = {}
        self.next = 0
        self.random = random.Random(seed)  # noqa: S311
        self.changed = self.rewritten = 0
        self.passes: list[int] = []  #: bytes rewritten in each

    def add(self, rows: int, row_bytes: int = 100) -> None:
        self._write(rows * row_bytes, rows)

    def _write(self, size: int, rows: int) -> None:
        self.sizes[self.next], self.dead[self.next] = (size, rows), 0
        self.next += 1

    def files(self) -> list[FileFacts]:
        return [facts(at, size, rows=rows, dead=self.dead[at]) for at, (size, rows) in self.sizes.items()]

    def change(self, rows: int) -> None:
        """A commit that replaces rows anywhere in the table, uniformly."""
        alive = {number: all_rows - self.dead[number] for number, (_, all_rows) in self.sizes.items()}
        part = rows / sum(alive.values())
        for number, count in alive.items():
            share = part * count
            dead = int(share) + (self.random.random() < share % 1)
            self.dead[number] += dead
            if dead >= count:
                del self.sizes[number], self.dead[number]
        self.add(rows)
        self.changed += rows * 100

    def maintain(self) -> None:
        written = 0
        target = self.policy.target_bytes
        due = one_pass(batches(self.policy.plan(self.files()), target), target)
        for group in (group for batch in due for group in batch):
            rows = sum(file.rows - file.dead for file in group.files)
            written += group.live_bytes
            for file in group.files:
                del self.sizes[file.number], self.dead[file.number]
            if rows:
                self._write(group.live_bytes, rows)
        self.rewritten += written
        self.passes.append(written)


@pytest.mark.parametrize(("rows", "per_second"), [(50_000_000, 1000), (50_000_000, 10_000), (1_000_000, 100)])
def test_the_cost_is_that_of_the_changes_whatever_the_table_s_size(rows: int, per_second: int) -> None:
    """Eight hours of uniform updates, a commit every 20 s that stands for twenty, a look every minute."""
    table = Table(POLICY)
    for _ in range(max(1, rows // 1_000_000)):
        table.add(min(rows, 1_000_000))
    for tick in range(8 * 3600 // 20):
        table.change(per_second * 20)
        if tick % 3 == 2:
            table.maintain()
    assert table.rewritten / table.changed < 6.5
    assert len(table.sizes) < 40 + 2 * rows * 100 // (64 * MB)
    worn = sum(table.dead.values()) / sum(rows for _, rows in table.sizes.values())
    assert worn < 0.35


# Slow: what lies between the ends.
@pytest.mark.parametrize("per_second", [100, pytest.param(1000, marks=pytest.mark.slow), 10_000])
def test_a_large_hot_table_is_never_rewritten_at_once(per_second: int) -> None:
    """50 M rows, a day of uniform updates: all files wear out together, and are written anew one after the other."""
    table = Table(POLICY)
    for _ in range(50):
        table.add(1_000_000)
    whole = sum(size for size, _ in table.sizes.values())
    for tick in range(24 * 3600 // 20):
        table.change(per_second * 20)
        if tick % 3 == 2:
            table.maintain()
    assert max(table.passes) <= FILES_PER_PASS * 1.1 * POLICY.target_bytes
    assert max(sum(table.passes[i : i + 5]) for i in range(len(table.passes))) < 0.6 * whole, "in five minutes"
    assert table.rewritten / table.changed < 5


def pools(folder: Path, target: Target, *files: tuple[str | None, int]) -> list[list[int]]:
    """Return the numbers of files, given by sid and size, that may be merged."""
    table = World(folder, target=target).table
    table.index.files.let_go()
    for number, (sid, size) in enumerate(files):
        table.index.files.add(FileEntry(number=number, path=f"{number}", rows=10, sid=sid, size=size))
    found: dict[object, list[int]] = {}
    for one in replace_files.facts(table, [*table.index.files], 100):
        found.setdefault(one.key, []).append(one.number)
    return sorted(found.values())


SHARED = Target(name="shop.items", has_sid=True)


def test_a_source_that_fills_half_a_file_has_files_of_its_own(tmp_path: Path) -> None:
    files = [("eu", 30), ("us", 10), (None, 70), ("eu", 30), ("ap", 49), (None, 5)]
    assert pools(tmp_path, SHARED, *files) == [[0, 3], [1, 2, 4, 5]]


def test_where_order_counts_a_shared_file_makes_all_sources_neighbours(tmp_path: Path) -> None:
    ordered = dataclasses.replace(SHARED, type=TableType.APPEND)
    assert pools(tmp_path, ordered, ("eu", 90), ("us", 90), ("eu", 10)) == [[0, 2], [1]]
    assert pools(tmp_path, ordered, ("eu", 90), (None, 1), ("us", 90)) == [[0, 1, 2]]
    assert pools(tmp_path, ordered, ("eu", 90), ("us", 1), ("ap", 1)) == [[0, 1, 2]]


@pytest.mark.parametrize("others", [{"type": TableType.HISTORY}, {"has_members": True}])
def test_where_files_are_not_shared_each_source_keeps_its_own(tmp_path: Path, others: dict) -> None:
    assert pools(tmp_path, dataclasses.replace(SHARED, **others), ("eu", 1), ("us", 1)) == [[0], [1]]
