"""Commits of one table: made, looked up where the answer was lost, and taken over by index and files."""

from __future__ import annotations

import pytest

from kuvasz.errors import ForeignChange, LakeError, LakeRewound, OutcomeUnknown
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.past import Past
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import SourcePosition
from tests.support.changes import TARGET, Sender, insert, work
from tests.support.local_lake import LocalWorld

HERE = SourcePosition(lsn=9000)


@pytest.fixture
def table(local_world: LocalWorld) -> LakeTable:
    """With one row in one file."""
    local_world.prepare("eu")
    local_world.applied(work(Sender().one(insert(1, 1))))
    return local_world.loaded()


@pytest.fixture
def changeset(local_world: LocalWorld, table: LakeTable) -> Changeset:
    """One more row, written."""
    (written,) = local_world.lake.write([work(Sender(start=5000).one(insert(2, 2)))]).tables
    (file,) = written.results[0].files
    made = Changeset()
    made.add(table.index.files.reserve(), file, "eu")
    return made


def make(table: LakeTable, changeset: Changeset, position: SourcePosition = HERE) -> int | None:
    with table.lock:
        return table.commits.make(changeset, {"eu": position})


def test_rows_and_positions_are_there_together(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    number = make(table, changeset)
    assert number == local_world.stored().now.current
    assert local_world.of("eu") == {1: (1, "b"), 2: (2, "b")}
    assert (table.positions["eu"], local_world.lake.stored(TARGET)["eu"]) == (HERE, HERE)
    assert {entry.path for entry in table.index.files} == {
        file.data["file-path"] for file in local_world.stored().now.files
    }
    assert (table.commits.changed_files, table.commits.rewritten_bytes) == (2, 0)


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_position_below_one_that_was_given_up_is_known_to_be_new_before_it_is_there(
    table: LakeTable, changeset: Changeset, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """Also if the process is killed before it notes the new one: nothing was set back."""
    monkeypatch.setattr(Past, "note", lambda _: None)
    table.past.give_up("eu", SourcePosition(lsn=HERE.lsn + 1000))
    if is_alone:
        table.commits.advance({"eu": HERE})
    else:
        make(table, changeset)
    assert table.positions == {"eu": HERE}
    table.past.check()


def test_without_a_change_there_is_no_commit(local_world: LocalWorld, table: LakeTable) -> None:
    before = local_world.stored().now
    assert make(table, Changeset()) is None
    assert local_world.stored().now is before
    table.commits.advance({"eu": HERE})
    assert (table.positions["eu"], local_world.lake.stored(TARGET)["eu"]) == (HERE, HERE)
    assert local_world.stored().now.snapshots == before.snapshots


def test_a_new_source_has_a_position_even_without_rows(local_world: LocalWorld, table: LakeTable) -> None:
    with table.lock:
        table.commits.make(Changeset(), {"us": HERE})
    assert local_world.lake.stored(TARGET)["us"] == HERE


def test_a_lost_answer_is_looked_up_and_not_repeated(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    def lose() -> None:
        raise OutcomeUnknown("the answer was lost")

    local_world.stored().after_commit.append(lose)
    before = local_world.snapshots()
    make(table, changeset)
    assert local_world.snapshots() == before + 1
    assert changeset.is_there
    assert table.positions["eu"] == HERE


def test_a_commit_that_did_not_land_raises_and_may_be_sent_again(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    def refuse() -> None:
        raise LakeError("the catalog is full")

    local_world.stored().before_commit.append(refuse)
    with pytest.raises(LakeError, match="the catalog is full"):
        make(table, changeset)
    assert table.positions["eu"] != HERE
    assert not changeset.is_there
    before = local_world.snapshots()
    make(table, changeset)
    assert local_world.snapshots() == before + 1
    assert local_world.of("eu") == {1: (1, "b"), 2: (2, "b")}


def test_while_nobody_can_say_nothing_is_repeated_or_removed(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    def lose() -> None:
        local_world.catalog.is_down = True
        raise OutcomeUnknown("the answer was lost")

    local_world.stored().after_commit.append(lose)
    with pytest.raises(LakeError, match="does not answer"):
        make(table, changeset)
    changeset.is_outcome_unknown = True
    table.commits.discard(changeset)
    local_world.catalog.is_down = False
    before = local_world.snapshots()
    make(table, changeset)
    assert local_world.snapshots() == before, "it is found, although someone gave it up"
    assert local_world.of("eu") == {1: (1, "b"), 2: (2, "b")}


@pytest.mark.parametrize("is_sent_before", [False, True])
def test_a_commit_that_is_refused_because_it_has_come_by_now_is_found(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset, is_sent_before: bool
) -> None:
    """It may be sent twice by whoever sends it, or be under way still when nobody has seen it."""

    def refuse() -> None:
        raise ForeignChange("what it brings is there already")

    def lose() -> None:
        raise OutcomeUnknown("the connection was lost")

    if is_sent_before:
        local_world.stored().before_commit.append(lose)
        with pytest.raises(OutcomeUnknown):
            make(table, changeset)
    before = local_world.snapshots()
    local_world.stored().after_commit.append(refuse)
    make(table, changeset)
    assert local_world.snapshots() == before + 1
    assert changeset.is_there
    assert local_world.of("eu") == {1: (1, "b"), 2: (2, "b")}


def test_a_commit_upon_someone_elses_has_the_index_follow_theirs(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    readings = table.index.readings
    local_world.stored().before_commit.append(local_world.stored().exchange_files)
    make(table, changeset)
    assert table.index.readings == readings + 1
    assert {entry.path for entry in table.index.files} == {
        file.data["file-path"] for file in local_world.stored().now.files
    }


def test_what_another_writer_changed_first_is_told(local_world: LocalWorld, table: LakeTable) -> None:
    changeset = Changeset()
    (entry,) = table.index.files
    changeset.dropped.add(entry.number)
    local_world.stored().before_commit.append(local_world.stored().exchange_files)
    with pytest.raises(ForeignChange):
        make(table, changeset)
    assert local_world.of("eu") == {1: (1, "b")}


def test_a_table_that_was_set_back_takes_nothing_of_its_sources(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    local_world.applied(work(Sender(start=6000).one(insert(3, 3))))
    before = local_world.snapshots()
    local_world.stored().roll_back(1)
    with table.lock, pytest.raises(LakeRewound):
        table.look()
    with pytest.raises(LakeRewound):
        make(table, changeset)
    assert local_world.snapshots() == before


def test_files_of_what_is_not_committed_go_but_those_to_keep(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    ((file, _),) = changeset.added.values()
    table.commits.discard(changeset, keep=[file.path])
    assert len(local_world.orphans()) == 1
    table.commits.discard(changeset)
    assert local_world.orphans() == []


def test_a_rewrite_is_counted_apart(table: LakeTable, changeset: Changeset) -> None:
    changeset.is_rewrite = True
    ((file, _),) = changeset.added.values()
    before = table.commits.changed_bytes
    with table.lock:
        table.commits.make(changeset, {})
    assert (table.commits.rewritten_bytes, table.commits.changed_bytes) == (file.size, before)


def test_whoever_waits_for_the_lock_meanwhile_is_not_kept_for_ever(
    local_world: LocalWorld, table: LakeTable, changeset: Changeset
) -> None:
    seen: list[float | None] = []
    local_world.stored().before_commit.append(lambda: seen.append(table.lock.doubtful_since))
    make(table, changeset)
    assert seen[0] is not None
    assert table.lock.doubtful_since is None
