"""One lake table at work: whose commits it sees, what it forgets, and whether it can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import LakeError, LakeRewound, LateCommit, TableGone
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.format import source_positions
from kuvasz.lake.iceberg.tables import read_index
from kuvasz.lake.table import commit_yield
from kuvasz.lake.table.commit_yield import YIELD_PROPERTY, CommitYield
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import Column, Segment, SourcePosition, TableType
from kuvasz.ports import Failure
from tests.support.changes import ITEMS, TARGET, TEXT, Sender, again, feed, insert, relation, target, update, work
from tests.support.local_lake import LocalWorld
from tests.support.source_table import SourceTable


@pytest.fixture
def table(local_world: LocalWorld) -> LakeTable:
    local_world.prepare("eu", "us")
    local_world.applied(work(Sender().one(insert(1, 1)), Sender("us").one(insert(1, 7))))
    return local_world.loaded()


def follow(table: LakeTable) -> bool:
    with table.lock:
        return table.follow()


def test_its_own_commits_are_none_of_others(table: LakeTable) -> None:
    assert not follow(table)


def test_what_another_one_committed_is_followed(local_world: LocalWorld, table: LakeTable) -> None:
    local_world.stored().exchange_files()
    assert follow(table)
    assert not follow(table)
    local_world.applied(work(Sender(start=5000).one(update(1, 2))))
    assert local_world.of("eu") == {1: (2, "b")}


@pytest.mark.parametrize("is_beneath", [False, True])
def test_who_asks_is_given_its_turn_also_where_its_commit_is_found_beneath_one_of_ours(
    local_world: LocalWorld, table: LakeTable, monkeypatch: pytest.MonkeyPatch, is_beneath: bool
) -> None:
    waited: list[bool] = []
    give = CommitYield.give
    monkeypatch.setattr(commit_yield, "YIELD_S", 0.01)
    monkeypatch.setattr(commit_yield, "_LOOK_S", 0.001)
    monkeypatch.setattr(CommitYield, "give", lambda self: waited.append(give(self)) or waited[-1])

    def ask() -> None:
        stored = local_world.stored()
        stored.change(properties={**stored.now.properties, YIELD_PROPERTY: "me"})
        stored.touch()

    if is_beneath:
        local_world.stored().before_commit.append(ask)
        local_world.applied(work(Sender(start=5000).one(insert(2, 2))))
        assert not any(waited), "it was not there when this commit was begun"
    else:
        ask()
    local_world.applied(work(Sender(start=6000).one(insert(3, 3))))
    assert waited.count(True) == 1
    assert local_world.of("eu")[3] == (3, "b")


def test_another_kuvasz_that_is_further_is_found_out(local_world: LocalWorld, table: LakeTable) -> None:
    ahead = source_positions.PREFIX + "eu"
    text = source_positions.render(SourcePosition(lsn=7000))
    local_world.stored().change(properties={**local_world.stored().now.properties, ahead: text})
    local_world.stored().touch()
    with pytest.raises(LateCommit) as caught:
        follow(table)
    assert caught.value.message == f"table {TARGET}: another process has committed changes of source eu"
    assert table.positions["eu"].lsn == 7000, "it begins again behind them"


def _late(world: LocalWorld) -> Segment:
    """Have a commit of a process that was killed come in, behind what the next one knows; return its changes."""
    eu = Sender(start=5000)
    changes = eu.one(insert(9, 9))
    killed, catalog = world.lake, world.catalog
    written = killed.write([work(changes)])
    world.begin(catalog)
    world.lake.prepare(target(table_type=TableType.APPEND), feed("eu"), ITEMS)
    world.lake.engine.pool.submit(lambda: None).result()  # its index is read by then
    world.loaded().index.reset()
    killed.commit(written)
    return changes


@pytest.fixture
def growing(local_world: LocalWorld) -> LocalWorld:
    """A table in which nothing replaces what comes twice."""
    local_world.lake.prepare(target(table_type=TableType.APPEND), feed("eu"), ITEMS)
    local_world.copy("eu")
    return local_world


def test_a_late_commit_is_found_out_though_no_index_is_open(growing: LocalWorld) -> None:
    changes = _late(growing)
    (outcome,) = growing.apply(work(again(changes)))
    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, LateCommit)
    growing.lake.resume(TARGET, growing.lake.failure(TARGET, "eu"))
    growing.applied(work(again(changes), Sender(start=6000).one(insert(10))))
    assert growing.of("eu").keys() == {9, 10}


@pytest.mark.parametrize("is_written", [False, True])
def test_who_else_finds_out_a_late_commit_keeps_its_changes_from_being_applied_twice(
    growing: LocalWorld, is_written: bool
) -> None:
    """As maintenance may, or a copy of another source, or who reads an index ahead: nobody else is told then."""
    changes = _late(growing)
    written = growing.lake.write([work(again(changes))]) if is_written else None
    read_index(growing.loaded())
    if written is not None:
        (outcome,) = growing.commit(written)
        assert isinstance(outcome, Failure)
        assert "what was written before is not taken" in outcome.error.message
        growing.lake.resume(TARGET, growing.lake.failure(TARGET, "eu"))
    growing.applied(work(again(changes), Sender(start=6000).one(insert(10))))
    assert growing.of("eu").keys() == {9, 10}


def test_a_transaction_in_parts_that_a_late_commit_has_is_not_gone_on_with(growing: LocalWorld) -> None:
    eu = Sender(start=5000)
    lsn = eu.commit_lsn()
    killed, catalog = growing.lake, growing.catalog
    written = killed.write([work(eu.segment([(lsn, [insert(9, 9), insert(8, 8)])]))])
    growing.begin(catalog)
    growing.lake.prepare(target(table_type=TableType.APPEND), feed("eu"), ITEMS)
    growing.applied(work(eu.part(lsn, insert(9, 9)), open_sources=["eu"]))
    killed.commit(written)
    with pytest.raises(LateCommit):
        follow(growing.loaded())
    assert growing.loaded().open.keys() == set()
    growing.applied(work(eu.segment([(lsn, [insert(8, 8)])])))
    assert growing.of("eu").keys() == {9, 8}


def test_a_format_that_someone_gave_it_meanwhile_is_written_from_then_on(
    local_world: LocalWorld, table: LakeTable
) -> None:
    """Iceberg refuses delete files of the other one."""

    def give(version: str) -> None:
        stored = local_world.stored()
        stored.change(properties={**stored.now.properties, "format-version": version})

    def kinds() -> list[str]:
        files = [file for file in local_world.stored().now.files if file.deletes]
        return [delete["file-format"] for file in files for delete in file.deletes]

    eu = Sender(start=5000)
    local_world.applied(work(eu.one(*(insert(key) for key in range(10, 20)))))
    give("2")
    local_world.applied(work(eu.one(update(10, 1), update(11, 1))))
    assert kinds() == ["parquet"]
    give("3")
    local_world.applied(work(eu.one(update(12, 2))))
    assert kinds() == ["puffin"], "it has what the other one had"
    assert local_world.of("eu").keys() == {1, *range(10, 20)}
    assert table.definition.format_version == 3


def test_columns_that_came_meanwhile_are_seen(local_world: LocalWorld, table: LakeTable) -> None:
    other = local_world.begin(local_world.catalog)
    other.prepare(target(), feed(), relation(Column(name="extra", pg_type=TEXT)))
    follow(table)
    assert table.definition.schema.by_name("extra") is not None


def test_a_look_tells_what_happened_to_it(local_world: LocalWorld, table: LakeTable) -> None:
    table.look()
    local_world.applied(work(Sender(start=5000).one(insert(2, 2))))
    local_world.stored().roll_back(1)
    with pytest.raises(LakeRewound):
        table.look()
    with pytest.raises(LakeRewound):
        table.look()
    local_world.catalog.drop(TARGET)
    with pytest.raises(TableGone):
        table.look()


def test_a_forgotten_position_takes_what_was_under_way_with_it(local_world: LocalWorld, table: LakeTable) -> None:
    eu = Sender(start=5000)
    local_world.applied(work(eu.part(eu.commit_lsn(), insert(2)), open_sources=["eu"]))
    assert table.open.keys() == {"eu"}
    table.forget_position("eu")
    assert (table.open.keys(), local_world.orphans()) == (set(), [])
    assert set(table.positions) == set(local_world.lake.stored(TARGET)) == {"us"}
    assert "eu" not in table.era.accepted


def test_a_source_that_is_gone_takes_its_columns_with_it(local_world: LocalWorld) -> None:
    local_world.prepare("eu", relation=SourceTable().catalog())
    table = local_world.loaded()
    assert table.columns.known.get("eu") is not None
    table.forget_position("eu")
    assert table.columns.known.get("eu") is not None
    table.forget_position("eu", is_gone=True)
    assert table.columns.known.get("eu") is None


def test_a_proof_writes_a_file_and_a_property_and_leaves_no_file(local_world: LocalWorld, table: LakeTable) -> None:
    folder = Path(local_world.stored().location.removeprefix("file://"), "data")
    before = sorted(folder.iterdir())
    table.prove()
    assert sorted(folder.iterdir()) == before
    first = local_world.stored().now.properties["kuvasz.proof"]
    table.prove()
    assert local_world.stored().now.properties["kuvasz.proof"] != first


def test_a_store_that_takes_nothing_is_told(local_world: LocalWorld, table: LakeTable) -> None:
    folder = Path(local_world.stored().location.removeprefix("file://"), "data")
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("a file in the way")
    with pytest.raises(LakeError) as caught:
        table.prove()
    assert caught.value.message.startswith(
        f"table {TARGET}: {local_world.stored().location}/data cannot be written: "
    )
    folder.unlink()
    folder.with_name("elsewhere").rename(folder)
    local_world.catalog.is_down = True
    with pytest.raises(LakeError, match="the catalog does not answer"):
        table.prove()
    local_world.catalog.is_down = False


def test_a_proof_behind_a_failed_commit_learns_how_far_the_table_is(
    local_world: LocalWorld, table: LakeTable
) -> None:
    """The commit may have landed after all."""
    table.forget(Changeset())
    ahead = source_positions.PREFIX + "eu"
    text = source_positions.render(SourcePosition(lsn=7000))
    local_world.stored().change(properties={**local_world.stored().now.properties, ahead: text})
    table.prove()
    assert table.positions["eu"].lsn == 7000


def test_what_a_failed_commit_left_is_forgotten(local_world: LocalWorld, table: LakeTable) -> None:
    (written,) = local_world.lake.write([work(Sender(start=5000).one(insert(2, 2)))]).tables
    changeset = Changeset()
    written.abandon_to(changeset)
    with table.lock:
        table.forget(changeset)
        assert local_world.orphans() == []
        assert not table.index.is_open
        table.follow()
        assert table.index.is_open


def test_closing_removes_what_was_not_committed_and_keeps_the_index(
    local_world: LocalWorld, table: LakeTable
) -> None:
    eu = Sender(start=5000)
    local_world.applied(work(eu.part(eu.commit_lsn(), insert(2)), open_sources=["eu"]))
    local_world.jobs.ran.clear()
    table.close()
    assert local_world.orphans() == []
    again = local_world.begin(local_world.catalog)
    local_world.prepare()
    again.prepare(target(), feed(), ITEMS)
    with again.table(TARGET).lock:
        again.table(TARGET).follow()
    assert "ReadKeys" not in local_world.jobs.ran, "no key had to be read again"
