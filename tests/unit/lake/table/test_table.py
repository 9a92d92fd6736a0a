"""One lake table at work: whose commits it sees, what it forgets, and whether it can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import LakeError, LakeRewound, LateCommit, TableGone
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import Column, SourcePosition
from tests.support.changes import ITEMS, TARGET, TEXT, Sender, feed, insert, relation, target, update, work
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


def test_another_kuvasz_that_is_further_is_found_out(local_world: LocalWorld, table: LakeTable) -> None:
    ahead = source_positions.PREFIX + "eu"
    text = source_positions.render(SourcePosition(lsn=7000))
    local_world.stored().change(properties={**local_world.stored().now.properties, ahead: text})
    local_world.stored().touch()
    with pytest.raises(LateCommit) as caught:
        follow(table)
    assert caught.value.message == f"table {TARGET}: another process has committed changes of source eu"
    assert table.positions["eu"].lsn == 7000, "it begins again behind them"


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
