"""Files of a table are exchanged while its stream goes on, upon real files, without Spark."""

from __future__ import annotations

import pytest

from kuvasz.errors import ForeignChange, LakeError, LakeRewound, OutcomeUnknown
from kuvasz.lake.maintenance.compaction_policy import FileGroup, Policy
from kuvasz.lake.maintenance.replace_files import Rewrite, Swapped, facts, read_ahead, shares_files
from kuvasz.model import TableType
from tests.support.changes import ITEMS, SAME, TARGET, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld

POLICY = Policy(target_bytes=1 << 27, min_files=2, max_dead_share=0.3)


class Bench:
    """Compaction step by step."""

    def __init__(self, world: LocalWorld, table_type: TableType = TableType.CLONE, *sources: str) -> None:
        self.world = world
        for source in sources or ("eu",):
            world.lake.prepare(target(table_type=table_type), feed(source), ITEMS)
            world.copy(source)
        self.table = world.loaded()
        self.eu = Sender()

    def spread(self, keys: int = 12, commits: int = 3) -> None:
        """Insert keys by several commits, so by several files."""
        for number in range(commits):
            rows = [insert(key, key, f"x{key}") for key in range(number, keys, commits)]
            self.world.applied(work(self.eu.one(*rows)))

    def groups(self) -> list[FileGroup]:
        with self.table.lock:
            self.table.follow()
            return POLICY.plan(facts(self.table, [*self.table.index.files], POLICY.target_bytes), full=True)

    def plan(self) -> Rewrite:
        groups = self.groups()
        definition = self.table.definition
        keys = self.world.lake.engine.readers.job(definition) if definition.has_unique_keys else None
        with self.table.lock:
            return Rewrite.plan(self.table, groups, keys)

    def begin(self) -> Rewrite:
        rewrite = self.plan()
        rewrite.write(self.world.jobs, 1)  # type: ignore[arg-type]
        return rewrite

    def end(self, rewrite: Rewrite) -> Swapped | None:
        with self.table.lock:
            return rewrite.commit(lambda swapped: {"told": str(swapped.files_before)})


@pytest.fixture
def bench(local_world: LocalWorld) -> Bench:
    made = Bench(local_world)
    made.spread()
    return made


def test_files_become_one_and_every_row_stays(bench: Bench) -> None:
    bench.world.applied(work(bench.eu.one(update(3, 33, SAME), delete(5))))
    before = bench.world.rows()
    swapped = bench.end(bench.begin())
    assert swapped is not None
    assert (swapped.files_before, swapped.files_after, swapped.rows, swapped.carried) == (4, 1, 11, 0)
    assert (bench.world.rows(), bench.world.files()) == (before, 1)
    snapshot = bench.world.stored().now.snapshots[-1]
    assert snapshot.summary["told"] == "4"
    bench.world.applied(work(bench.eu.one(update(3, 34, SAME), delete(7), insert(5, 55))))
    assert {key: bench.world.of("eu").get(key) for key in (3, 5, 7)} == {3: (34, "x3"), 5: (55, "b"), 7: None}


def test_what_dies_while_files_are_written_stays_dead(bench: Bench) -> None:
    rewrite = bench.begin()
    bench.world.applied(work(bench.eu.one(delete(1), update(2, 22, SAME))))
    swapped = bench.end(rewrite)
    assert swapped is not None
    assert swapped.carried == 2
    found = bench.world.of("eu")
    assert (1 in found, found[2]) == (False, (22, "x2"))
    bench.world.applied(work(bench.eu.one(update(2, 23, SAME), insert(1, 11))))
    assert (bench.world.of("eu")[1], bench.world.of("eu")[2]) == ((11, "b"), (23, "x2"))


def test_written_changes_that_wait_for_their_commit_find_the_new_files(bench: Bench) -> None:
    rewrite = bench.begin()
    written = bench.world.lake.write([work(bench.eu.one(update(4, 44, SAME), delete(6)))])
    bench.end(rewrite)
    bench.world.commit(written)
    assert (bench.world.of("eu")[4], 6 in bench.world.of("eu")) == ((44, "x4"), False)


def test_an_open_transaction_goes_on_over_an_exchange(bench: Bench) -> None:
    lsn = bench.eu.commit_lsn()
    bench.world.applied(work(bench.eu.part(lsn, update(4, 44, SAME), delete(6)), open_sources=["eu"]))
    bench.end(bench.begin())
    assert len(bench.world.of("eu")) == 12
    bench.world.applied(work(through={"eu": lsn + 8}))
    found = bench.world.of("eu")
    assert (len(found), found[4], 6 in found) == (11, (44, "x4"), False)


def test_files_that_a_truncate_took_are_not_brought_back(bench: Bench) -> None:
    rewrite = bench.begin()
    bench.world.applied(work(bench.eu.truncation(), bench.eu.one(insert(1, 7))))
    assert bench.end(rewrite) is None
    assert bench.world.of("eu") == {1: (7, "b")}
    for path in rewrite.paths:
        assert path.rpartition("/")[2] not in bench.world.orphans()


def test_another_writers_commit_in_between_has_it_worked_out_again(bench: Bench) -> None:
    rewrite = bench.begin()
    bench.world.stored().before_commit.append(_conflict)
    before = bench.world.rows()
    assert bench.end(rewrite) is not None
    assert (bench.world.rows(), bench.world.files()) == (before, 1)


def test_it_gives_way_a_few_times_and_leaves_the_table_as_it_was(bench: Bench) -> None:
    rewrite = bench.begin()
    before, known = bench.world.rows(), bench.world.orphans()
    bench.world.stored().before_commit += [_conflict] * 20
    with pytest.raises(ForeignChange):
        bench.end(rewrite)
    bench.world.stored().before_commit.clear()
    assert bench.world.rows() == before
    assert set(bench.world.orphans()) == set(known) - {path.rpartition("/")[2] for path in rewrite.paths}
    bench.world.applied(work(bench.eu.one(update(4, 44, SAME))))
    assert bench.world.of("eu")[4] == (44, "x4")


def _conflict() -> None:
    raise ForeignChange(f"table {TARGET}: another writer")


def test_files_of_an_exchange_of_which_nobody_knows_stay(bench: Bench) -> None:
    def lose() -> None:
        bench.world.catalog.is_down = True
        raise OutcomeUnknown("the answer was lost")

    rewrite = bench.begin()
    before = bench.world.rows()
    bench.world.stored().after_commit.append(lose)
    with pytest.raises(LakeError):
        bench.end(rewrite)
    bench.world.catalog.is_down = False
    assert bench.world.rows() == before, "it was made, and its files are there"
    bench.world.applied(work(bench.eu.one(update(4, 44, SAME), delete(1))))
    assert (bench.world.of("eu")[4], 1 in bench.world.of("eu")) == ((44, "x4"), False)


def test_whatever_fails_behind_the_commit_takes_no_file_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("nobody foresaw it")

    rewrite = bench.begin()
    before = bench.world.rows()
    monkeypatch.setattr(Rewrite, "_move_open", fail)
    with pytest.raises(RuntimeError, match="nobody foresaw it"):
        bench.end(rewrite)
    assert bench.world.rows() == before, "it was made"
    bench.world.applied(work(bench.eu.one(update(4, 44, SAME), delete(1))))
    assert (bench.world.of("eu")[4], 1 in bench.world.of("eu")) == ((44, "x4"), False)


@pytest.mark.parametrize("is_set_back", [False, True])
def test_whatever_the_answer_to_the_commit_is_takes_no_file_away(bench: Bench, is_set_back: bool) -> None:
    """A table that someone sets back at the same time can be set forth again."""
    stored, rewrite, before = bench.world.stored(), bench.begin(), bench.world.rows()

    def answer() -> None:
        if is_set_back:
            stored.roll_back(stored.now.snapshots[0].number)
            raise OutcomeUnknown("the answer was lost")
        raise RuntimeError("nobody foresaw it")

    stored.after_commit.append(answer)
    with pytest.raises(LakeRewound if is_set_back else RuntimeError):
        bench.end(rewrite)
    stored.roll_back(stored.now.snapshots[-1].number)
    assert (bench.world.rows(), bench.world.files()) == (before, 1)


def test_a_job_that_failed_leaves_what_is_to_be_abandoned(bench: Bench) -> None:
    rewrite = bench.plan()
    bench.world.jobs.failures.append("an executor died")
    with pytest.raises(LakeError, match="an executor died"):
        rewrite.write(bench.world.jobs, 1)  # type: ignore[arg-type]
    rewrite.abandon()
    assert bench.world.orphans() == []
    assert len(bench.world.rows()) == 12


def test_a_history_keeps_all_versions_and_knows_the_newest(local_world: LocalWorld) -> None:
    bench = Bench(local_world, TableType.HISTORY)
    eu = bench.eu
    local_world.applied(work(eu.one(insert(1, 1), insert(2, 2))))
    local_world.applied(work(eu.one(update(1, 11))))
    local_world.applied(work(eu.one(insert(3, 3))))
    before = local_world.versions()
    assert bench.end(bench.begin()) is not None
    assert local_world.versions() == before
    local_world.applied(work(eu.one(update(1, 12), delete(2))))
    found = {(row[0], row[1]): row[3:] for row in local_world.versions()}
    assert found[1, 11] == (eu._lsn * 10, False)
    assert found[2, 2] == (eu._lsn * 10, True)


def test_a_growing_tables_files_keep_their_age(local_world: LocalWorld) -> None:
    """So that an index read anew knows which row of a key is the newest."""
    bench = Bench(local_world, TableType.APPEND)
    for n in range(3):
        local_world.applied(work(bench.eu.one(insert(1, n))))
    ages = [file.age for file in sorted(local_world.stored().now.files, key=lambda file: file.age)]
    (group, *_) = bench.groups()
    assert bench.end(bench.begin()) is not None
    (merged,) = local_world.stored().now.files
    assert merged.sequence == ages[-1][0], "as old as its newest rows"
    assert len(group.files) == 3


def test_small_sources_share_files_and_large_ones_do_not(local_world: LocalWorld) -> None:
    bench = Bench(local_world, TableType.CLONE, "eu", "us", "ap")
    for name in ("eu", "us", "ap"):
        local_world.applied(work(Sender(name).one(*(insert(key) for key in range(40 if name == "ap" else 2)))))
    sizes = {entry.sid: entry.size for entry in bench.table.index.files}
    files = [*bench.table.index.files]
    keys = {one.key[0] for one in facts(bench.table, files, 2 * sizes["ap"])}
    assert keys == {None, "ap"}
    assert {one.key[0] for one in facts(bench.table, files, 1 << 30)} == {None}
    assert {one.key[0] for one in facts(bench.table, files, 1)} == {"eu", "us", "ap"}
    assert shares_files(bench.table)


@pytest.mark.parametrize("table_type", [TableType.HISTORY])
def test_a_historys_sources_share_no_file(local_world: LocalWorld, table_type: TableType) -> None:
    assert not shares_files(Bench(local_world, table_type, "eu", "us").table)


def test_shared_files_are_merged_with_every_source_s_rows(local_world: LocalWorld) -> None:
    bench = Bench(local_world, TableType.CLONE, "eu", "us")
    senders = [Sender("eu"), Sender("us")]
    for key in range(3):
        local_world.applied(work(*(one.one(insert(key, key)) for one in senders)))
    before = local_world.rows()
    assert bench.end(bench.begin()) is not None
    assert (local_world.rows(), local_world.files()) == (before, 1)
    local_world.applied(work(senders[0].truncation()))
    assert set(local_world.rows()) == {("us", key) for key in range(3)}


def test_delete_files_are_read_before_the_lock_is_wanted(bench: Bench) -> None:
    bench.world.applied(work(bench.eu.one(delete(5))))
    groups = bench.groups()
    for entry in bench.table.index.files:
        entry.dead = None
    read_ahead(bench.table, groups)
    assert [len(entry.dead) for entry in bench.table.index.files if entry.all_deletes] == [1]
