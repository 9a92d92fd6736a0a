"""A table that is written to a branch: main stays as it is until someone publishes, and loses nothing by that."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import pytest

from kuvasz.errors import ConfigError, KuvaszError, LakeError, LakeRewound
from kuvasz.lake.erasure.erasure import opened
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.iceberg.branches import publish_once
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.jvm.refs.branch import Branch
from kuvasz.lake.table.notes import REWOUND_PREFIX
from kuvasz.ports import Published, Target
from kuvasz.verbs.lakeview import LakeView
from tests.support.branches import BranchedTable
from tests.support.changes import ITEMS, TARGET, Sender, delete, feed, insert, target, update, work
from tests.support.lake import LakeFolder
from tests.support.worlds import QUIET, IcebergWorld

pytestmark = pytest.mark.spark


class BranchedWorld(IcebergWorld):
    """A lake whose one table is written to a branch."""

    def __init__(self, folder: LakeFolder) -> None:
        super().__init__(folder, QUIET)
        self.seen = BranchedTable(folder)
        self.eu = Sender("eu")

    def begin(self, branch: str = "staging", *rows: tuple) -> None:
        """Load the table, copied if it is not there."""
        self.lake.prepare(written_to(branch), feed("eu"), ITEMS)
        if "eu" not in self.lake.positions(TARGET):
            self.copy("eu", *rows)

    def begin_again(self, branch: str) -> BranchedWorld:
        """Have another process load it, whose map may say another branch."""
        self.lake.close()
        made = BranchedWorld(self._folder)
        made.eu = self.eu
        made.begin(branch)
        return made

    def keys(self, branch: str = "main") -> set[int]:
        return {int(row[place]) for rows in [self.seen.rows(branch)] for place in [rows.columns.index("id")]
                for row in rows.rows}  # fmt: skip

    def one(self, *changes: bytes) -> None:
        self.applied(work(self.eu.one(*changes)))

    def publish(self, tag: str | None = None) -> tuple[int | None, int | None]:
        made = self.lake.branches.publish(TARGET, tag)
        assert made.branch == "staging"
        return made.before, made.after


def written_to(branch: str) -> Target:
    return dataclasses.replace(target(), branch=branch)


@pytest.fixture
def world(lake_folder: LakeFolder) -> Iterator[BranchedWorld]:
    made = BranchedWorld(lake_folder)
    yield made
    made.lake.close()


@pytest.mark.parametrize("is_inside", [True, False])
def test_main_shows_what_was_published_and_nothing_else(world: BranchedWorld, *, is_inside: bool) -> None:
    catalog = world.lake.engine.catalog
    catalog.classes.calls = catalog.classes.calls if is_inside else catalog.classes.plain
    world.begin("staging", (1, 0, "x"), (2, 0, "x"))
    assert world.seen.refs().keys() == {"staging"}
    world.one(insert(3), update(1, 7), delete(2))
    assert world.keys() == set()
    assert world.keys("staging") == {1, 3}
    assert world.lake.branches.publish(TARGET, is_trial=True).before is None
    assert world.keys() == set(), "it was a trial"
    first = world.publish()
    assert first == (None, world.seen.refs()["staging"])
    assert world.keys() == {1, 3}
    assert world.publish() == (first[1], first[1]), "there is nothing new"
    world.one(insert(4), delete(1))
    table = world.lake.table(TARGET)
    with table.lock:
        assert not table.follow(), "a publication is no commit of someone else's"
    assert (world.keys(), world.keys("staging")) == ({1, 3}, {3, 4})
    lineage = LakeView(world.config).lineage(TARGET)
    assert lineage is not None
    assert lineage.lineage.steps[-1].snapshot.id == world.seen.refs()["staging"]
    assert world.lake.tags.add(TARGET, "cut_x", 60.0) == world.seen.refs()["staging"]
    assert world.publish()[0] == first[1]
    assert world.keys() == {3, 4}
    assert world.lake.commit_conflicts == 0


def test_a_table_goes_on_from_what_was_written_when_its_branch_is_another(world: BranchedWorld) -> None:
    world.begin("main", (1, 0, "x"))
    world.one(insert(2))
    with pytest.raises(LakeError, match="main is written, so there is nothing to publish"):
        world.publish()
    world = world.begin_again("staging")
    assert world.seen.refs()["staging"] == world.seen.refs()["main"]
    world.one(insert(3), delete(1))
    summary = world.iceberg().snapshot_by_name("staging").summary
    assert int(summary["total-records"]) - int(summary["total-position-deletes"]) in {2, 3}, "counted from main on"
    assert (world.keys(), world.keys("staging")) == ({1, 2}, {2, 3})
    with pytest.raises(LakeError, match="main is to be written, and what was written to staging is not published"):
        world.begin_again("main")
    world = world.begin_again("other")
    world.one(insert(4))
    assert [world.keys(one) for one in ("main", "staging", "other")] == [{1, 2}, {2, 3}, {2, 3, 4}]
    assert world.lake.branches.publish(TARGET).branch == "other"
    world = world.begin_again("main")
    world.one(insert(5))
    assert world.keys() == {2, 3, 4, 5}
    world = world.begin_again("staging")
    assert world.keys("staging") == {2, 3, 4, 5}, "it had nothing of its own, and comes along"
    world.sql(f"ALTER TABLE {world.catalog}.{TARGET} CREATE TAG named")
    with pytest.raises(LakeError, match="named is a tag"):
        world.begin_again("named")
    world.sql(f"INSERT INTO {world.catalog}.{TARGET}.branch_other VALUES ('xx', 9L, 0, 'b')")
    with pytest.raises(LakeError, match="the branch other has something that staging does not have"):
        world.begin_again("other")


def test_what_someone_else_wrote_to_main_is_not_lost_by_a_publication(world: BranchedWorld) -> None:
    world.begin("staging", (1, 0, "x"))
    world.publish()
    world.sql(f"INSERT INTO {world.catalog}.{TARGET} VALUES ('eu', 9L, 0, 'b')")
    world.one(insert(2))
    with pytest.raises(LakeError, match="from which the branch staging does not descend") as refused:
        world.publish()
    assert (world.keys(), world.keys("staging")) == ({1, 9}, {1, 2})
    call = str(refused.value.hint).partition("CALL ")[2].partition(" has it")[0]  # as the hint says
    world.sql(f"CALL {world.catalog}.{call}")
    assert world.keys() == {1, 2}
    world.one(insert(3))
    world.publish()
    assert world.keys() == {1, 2, 3}


def test_without_a_kuvasz_the_table_says_whether_all_of_its_sources_are_in_it(world: BranchedWorld) -> None:
    """The first copy of one may have been cut off, or somebody has set the table back."""
    world.begin("staging", (1, 0, "x"))

    def publish(*sources: str, is_forced: bool = False) -> Published | tuple[str, KuvaszError]:
        (found,) = publish_once(
            world.config, {TARGET: sources}, is_trial=False, is_forced=is_forced, session=world.session
        )
        return found

    (_, error) = publish("eu", "us")
    assert isinstance(error, LakeError)
    assert "not all of its sources are in it: us is not copied" in error.message
    assert "kuvasz publish --force" in error.hint  # as the hint says
    assert world.keys() == set()
    table = world.seen.handle()
    table.set_properties({f"{REWOUND_PREFIX}eu": "it was set back"})
    (_, error) = publish("eu")
    assert "someone set back the rows of eu" in error.message
    table.remove_properties([f"{REWOUND_PREFIX}eu"])
    assert isinstance(publish("eu"), Published)
    world.one(insert(2))
    assert isinstance(publish("eu", "us", is_forced=True), Published)
    assert world.keys() == {1, 2}


def test_a_publication_and_commits_that_meet_are_both_made(
    world: BranchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin("staging", (1, 0, "x"))
    found, commit = Branch._found, IcebergTable.commit
    numbers = iter(range(10, 13))

    def commits_meanwhile(branch: Branch, tag: str | None) -> object:
        made = found(branch, tag)
        if number := next(numbers, None):
            world.one(insert(number))
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Branch, "_found", commits_meanwhile)
        world.publish()
    assert world.keys() == {1, 10, 11, 12}

    def published_meanwhile(table: IcebergTable, one: TableCommit) -> object:
        world.publish()
        return commit(table, one)

    world.one(insert(20))
    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "commit", published_meanwhile)
        world.one(insert(21))
    assert (world.keys() & {20, 21}, world.keys("staging") & {20, 21}) == ({20}, {20, 21})
    assert world.lake.commit_conflicts == 0


def test_files_are_merged_and_snapshots_expire_on_the_branch_and_main_keeps_its_own(world: BranchedWorld) -> None:
    world.begin("staging", *((number, 0, "x") for number in range(1, 6)))
    world.publish()
    shown = world.seen.refs()["main"]
    table = world.lake.engine.catalog.load(TARGET)
    assert table is not None
    for number in range(10, 16):
        world.one(insert(number), delete(number - 9))
    world.lake.maintenance.run(TARGET, full=True)
    table.refresh()
    table.branch.note_lineage()
    table.snapshots.expire(int(time.time() * 1000) + 1000, 1)
    assert world.snapshots() == 2, "all between them are gone"
    world.one(insert(20))
    assert world.keys() == {1, 2, 3, 4, 5}
    assert world.keys("staging") == {10, 11, 12, 13, 14, 15, 20}
    assert world.publish()[0] == shown
    assert world.keys() == {10, 11, 12, 13, 14, 15, 20}
    world.one(insert(21))
    world.one(insert(22))
    table.snapshots.expire(int(time.time() * 1000) + 1000, 1)
    with pytest.raises(LakeError, match="does not descend"):
        world.publish()  # someone else expired them, and has noted nothing


def test_what_a_cut_has_tagged_is_published_and_nothing_that_came_later(world: BranchedWorld) -> None:
    world.begin("staging", (1, 0, "x"))
    for number, name in enumerate(("a", "b", "c"), 2):
        world.one(insert(number))
        world.lake.tags.add(TARGET, f"cut_{name}", 3600.0)
    refs = world.seen.refs()
    world.one(insert(9))
    assert world.lake.branches.publish(TARGET, "cut_a", is_trial=True).after == refs["cut_a"]
    assert world.publish("cut_a") == (None, refs["cut_a"])
    assert (world.keys(), world.keys("staging")) == ({1, 2}, {1, 2, 3, 4, 9})
    assert world.publish("cut_c") == (refs["cut_a"], refs["cut_c"])
    assert world.publish("cut_c") == (refs["cut_c"], refs["cut_c"])
    with pytest.raises(LakeError, match="which came after"):
        world.publish("cut_b")
    with pytest.raises(LakeError, match="there is no tag cut_d"):
        world.publish("cut_d")
    with pytest.raises(LakeError, match="there is no tag staging"):
        world.publish("staging")
    assert world.keys() == {1, 2, 3, 4}
    world.publish()
    assert world.keys() == {1, 2, 3, 4, 9}


def test_a_cut_can_be_published_when_the_snapshots_beside_it_are_gone(world: BranchedWorld) -> None:
    world.begin("staging", (1, 0, "x"))
    world.publish()
    table = world.lake.engine.catalog.load(TARGET)
    assert table is not None

    def expire(number: int) -> None:
        for key in (number, number + 1):
            world.one(insert(key))
        table.refresh()
        table.branch.note_lineage()
        table.snapshots.expire(int(time.time() * 1000) + 1000, 1)

    expire(10)
    world.lake.tags.add(TARGET, "cut_a", 3600.0)
    expire(20)
    world.lake.tags.add(TARGET, "cut_b", 3600.0)
    world.sql(f"ALTER TABLE {world.catalog}.{TARGET} CREATE TAG cut_main AS OF VERSION {world.seen.refs()['main']}")
    expire(30)
    expire(40)
    world.publish("cut_a")
    assert world.keys() == {1, 10, 11}
    with pytest.raises(LakeError, match="which came after"):
        world.publish("cut_main")
    expire(50)
    world.publish("cut_b")
    assert world.keys() == {1, 10, 11, 20, 21}
    world.publish()
    assert world.keys() == world.keys("staging")


def test_a_tag_of_what_the_branch_has_no_more_is_not_published(world: BranchedWorld) -> None:
    world.begin("staging", (1, 0, "x"))
    world.publish()
    before = world.seen.refs()["staging"]
    world.one(insert(2))
    world.lake.tags.add(TARGET, "cut_a", 3600.0)
    world.sql(f"ALTER TABLE {world.catalog}.{TARGET} REPLACE BRANCH staging AS OF VERSION {before}")
    with pytest.raises(LakeError, match="the tag cut_a has snapshot"):
        world.publish("cut_a")
    assert world.keys() == {1}


def test_a_branch_that_is_gone_or_was_set_back_is_a_lake_that_was_rewound(world: BranchedWorld) -> None:
    world.begin("staging", (1, 0, "x"))
    world.publish()
    world.one(insert(2))
    world.sql(f"ALTER TABLE {world.catalog}.{TARGET} DROP BRANCH staging")
    (failure,) = world.lake.patrol()
    assert isinstance(failure.error, LakeRewound)


def test_rows_are_erased_where_main_alone_is_written(world: BranchedWorld) -> None:
    world.begin("staging", (1, 0, "x"))
    with opened(world.config, world.session) as work_of_erasure:
        with pytest.raises(ConfigError, match="written to a branch besides main"):
            work_of_erasure.refuse_branches([target()])
        world.publish()
        world = world.begin_again("main")
        work_of_erasure.refuse_branches([target()])
