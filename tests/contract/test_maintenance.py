"""Files of a table are exchanged while its stream goes on: every row stays, wherever the two meet."""

from __future__ import annotations

import os
import random
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent

from kuvasz.errors import ForeignChange, LakeError, OutcomeUnknown
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.format import source_positions
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.jvm.snapshots import Snapshots
from kuvasz.lake.maintenance.compaction_policy import FileGroup, Policy
from kuvasz.lake.maintenance.orphans import Orphans
from kuvasz.lake.maintenance.replace_files import Rewrite, facts
from kuvasz.lake.table.commits import Commits
from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition, TableType
from kuvasz.modes import system_columns
from kuvasz.ports import Receipt
from tests.support.changes import ITEMS, SAME, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.lake import LakeFolder
from tests.support.worlds import QUIET, IcebergWorld

pytestmark = pytest.mark.spark

#: Only what a test asks for.


#: Position deletes differ from deletion vectors in how they are written, not in when: the whole suite has both.
VERSIONS = [3, pytest.param(2, marks=pytest.mark.slow)]


@pytest.fixture(params=VERSIONS, ids=lambda version: f"v{version}")
def world(spark_session: object, request: pytest.FixtureRequest) -> Iterator[IcebergWorld]:
    folder = LakeFolder(spark_session, format_version=request.param)
    made = IcebergWorld(folder, QUIET)
    yield made
    made.lake.close()
    folder.remove()


@pytest.fixture
def old_world(spark_session: object) -> Iterator[IcebergWorld]:
    """With position deletes."""
    folder = LakeFolder(spark_session, format_version=2)
    made = IcebergWorld(folder, QUIET)
    yield made
    made.lake.close()
    folder.remove()


class Hands:
    """Compaction step by step."""

    def __init__(self, world: IcebergWorld) -> None:
        self.world = world
        self.table = world.lake.table(TARGET)
        self.jobs = Jobs(world.lake.engine.session)

    def plan(self, *groups: FileGroup) -> Rewrite:
        with self.table.lock:
            self.table.follow()
            policy = Policy(target_bytes=1 << 27, min_files=2, max_dead_share=0.3)
            groups = groups or policy.plan(
                facts(self.table, [*self.table.index.files], policy.target_bytes), full=True
            )
            definition = self.table.definition
            keys = self.world.lake.engine.readers.job(definition) if definition.has_unique_keys else None
            return Rewrite.plan(self.table, groups, keys)

    def begin(self) -> Rewrite:
        rewrite = self.plan()
        rewrite.write(self.jobs, 1)
        return rewrite

    def end(self, rewrite: Rewrite) -> object:
        with self.table.lock:
            return rewrite.commit(lambda swapped: {"kuvasz.rewritten-files": str(swapped.files_before)})

    @property
    def files(self) -> int:
        return len(self.table.index.files)


def prepared(world: IcebergWorld, *sources: str) -> Hands:
    world.prepare(*(sources or ("eu",)))
    return Hands(world)


def spread(world: IcebergWorld, sender: Sender, keys: int, commits: int = 4) -> None:
    """Insert keys by several commits, so by several files."""
    for number in range(commits):
        world.applied(work(sender.one(*(insert(key, key, f"x{key}") for key in range(number, keys, commits)))))


def test_files_become_one_and_rows_stay(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 40)
    world.applied(work(eu.one(update(3, 33, SAME), delete(5), update(100, 7, SAME, old=7))))
    before = world.rows()
    swapped = hands.end(hands.begin())
    assert (swapped.files_before, swapped.files_after, swapped.rows, hands.files) == (5, 1, 39, 1)
    assert world.rows() == before
    assert next(iter(hands.table.index.files)).delete is None
    world.applied(work(eu.one(update(100, 8, SAME), delete(3), insert(3, 1, "new"), update(9, 99, SAME))))
    assert world.of("eu")[100] == (8, "x7")
    assert world.of("eu")[3] == (1, "new")
    assert world.of("eu")[9] == (99, "x9")
    assert len(world.rows()) == 39
    assert world.orphans() == []


def test_the_snapshot_says_that_no_row_changed(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    position = world.position("eu")
    hands.end(hands.begin())
    summary = world.iceberg().current_snapshot().summary
    assert summary.operation.value == "replace"
    assert summary["kuvasz.rewritten-files"] == "4"
    assert world.position("eu") == position
    assert source_positions.lsn_of(world.iceberg().properties["kuvasz.position.eu"]) == position


def test_what_dies_while_files_are_written_stays_dead(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 40)
    world.applied(work(eu.one(delete(0), delete(1))))
    rewrite = hands.begin()
    world.applied(work(eu.one(delete(2), update(3, 33, "y"), update(40, 4, "z", old=4))))
    world.applied(work(eu.one(insert(2, 22, "again"))))
    before = world.rows()
    swapped = hands.end(rewrite)
    assert swapped.carried == 3
    assert world.rows() == before
    world.applied(work(eu.one(update(2, 23, SAME), update(3, 34, SAME), update(40, 5, SAME), update(39, 6, SAME))))
    after = world.of("eu")
    assert (after[2], after[3], after[40], after[39]) == ((23, "again"), (34, "y"), (5, "z"), (6, "x39"))
    assert len(after) == 38
    assert world.orphans() == []


def test_written_changes_that_wait_for_their_commit_find_the_new_files(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    rewrite = hands.begin()
    written = world.lake.write([work(eu.one(update(1, 10, SAME), delete(2)))])
    hands.end(rewrite)
    assert all(isinstance(outcome, Receipt) for outcome in world.lake.commit(written))
    assert world.of("eu")[1] == (10, "x1")
    assert 2 not in world.of("eu")
    assert world.orphans() == []


def test_an_open_transaction_goes_on_over_an_exchange(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 12)
    lsn = eu.commit_lsn()
    world.applied(
        work(eu.part(lsn, update(1, 10, SAME), delete(2), delete(3), insert(3, 3, "n")), open_sources=["eu"])
    )
    rewrite = hands.begin()
    world.applied(work(eu.part(lsn, update(4, 40, SAME), update(1, 11, SAME)), open_sources=["eu"]))
    before = world.rows()
    assert hands.end(rewrite) is not None
    assert world.rows() == before
    world.applied(work(eu.part(lsn, delete(5), update(3, 4, SAME)), open_sources=["eu"]))
    world.applied(work(eu.segment([(lsn, [update(6, 60, SAME)])])))
    after = world.of("eu")
    assert len(after) == 10
    assert (after[1], after[3], after[4], after[6]) == ((11, "x1"), (4, "n"), (40, "x4"), (60, "x6"))
    assert world.orphans() == []


def test_a_truncate_between_leaves_nothing(world: IcebergWorld) -> None:
    hands = prepared(world, "eu", "us")
    eu, us = Sender(), Sender("us")
    spread(world, eu, 8)
    spread(world, us, 8)
    rewrite = hands.begin()
    world.applied(work(eu.truncation(), eu.one(insert(1, 1, "after"))))
    hands.end(rewrite)
    assert world.of("eu") == {1: (1, "after")}
    assert len(world.of("us")) == 8
    world.applied(work(eu.one(update(1, 2, SAME)), us.one(update(1, 3, SAME)), us.truncation()))
    assert world.rows() == {("eu", 1): (2, "after")}
    assert world.orphans() == []


def test_files_of_small_sources_become_one(world: IcebergWorld) -> None:
    hands = prepared(world, "eu", "us")
    senders = Sender(), Sender("us")
    for sender in senders:
        spread(world, sender, 8)
    hands.end(hands.begin())
    assert [(entry.sid, entry.sids) for entry in hands.table.index.files] == [(None, ("eu", "us"))]
    world.applied(work(*(sender.one(update(3, 33, SAME)) for sender in senders), senders[0].truncation()))
    assert world.rows() == {("us", key): (33 if key == 3 else key, f"x{key}") for key in range(8)}


def test_a_file_that_went_away_meanwhile_is_not_missed(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    rewrite = hands.begin()
    world.applied(work(eu.one(delete(0), delete(4))))  # all of the first file
    before = world.rows()
    assert hands.end(rewrite).carried == 2
    assert world.rows() == before
    assert world.orphans() == []


def test_an_exchange_that_iceberg_would_refuse_is_planned_anew(world: IcebergWorld) -> None:
    """All rows of one file died, and one of another: the new file would have more rows than it replaces."""
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    rewrite = hands.begin()
    world.applied(work(eu.one(delete(0), delete(4), delete(1))))
    before = world.rows()
    assert hands.end(rewrite) is None
    assert (world.rows(), world.orphans()) == (before, [])
    world.applied(work(eu.one(update(2, 22, SAME), update(3, 33, SAME))))
    assert hands.end(hands.begin()) is not None
    assert world.of("eu") == {2: (22, "x2"), 3: (33, "x3"), 5: (5, "x5"), 6: (6, "x6"), 7: (7, "x7")}


def test_another_process_reads_the_keys_of_the_new_files(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    hands.table.index.save()
    rewrite = hands.begin()
    world.applied(work(eu.one(delete(3))))
    hands.end(rewrite)
    hands.table.index.reset()  # as after a kill: the index is what the checkpoint said
    world.applied(work(eu.one(update(1, 10, SAME), insert(3, 3, "new"), delete(2))))
    assert len(world.rows()) == 7
    assert (world.of("eu")[1], world.of("eu")[3]) == ((10, "x1"), (3, "new"))


def _steps(monkeypatch: pytest.MonkeyPatch, *errors: tuple[bool, Exception]) -> None:
    """Each commit is made, or not, and fails with the next error."""
    real = IcebergTable.commit
    left = list(errors)

    def commit(table: IcebergTable, commit: TableCommit) -> object:
        if not left:
            return real(table, commit)
        is_made, error = left.pop(0)
        if is_made:
            real(table, commit)
        raise error

    monkeypatch.setattr(IcebergTable, "commit", commit)


def test_a_lost_answer_is_looked_up(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    rewrite = hands.begin()
    _steps(monkeypatch, (True, OutcomeUnknown("the connection was reset")))
    assert hands.end(rewrite) is not None
    world.applied(work(eu.one(update(1, 10, SAME))))
    assert (len(world.rows()), world.of("eu")[1], world.orphans()) == (8, (10, "x1"), [])


def test_a_conflict_with_another_process_is_worked_out_again(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    rewrite = hands.begin()
    world.applied(work(eu.one(delete(3))))
    _steps(monkeypatch, (False, ForeignChange("another writer was faster")))
    assert hands.end(rewrite).carried == 1
    world.applied(work(eu.one(update(1, 10, SAME))))
    assert (len(world.rows()), world.of("eu")[1], world.orphans()) == (7, (10, "x1"), [])


@pytest.mark.parametrize("is_made", [True, False])
def test_a_commit_that_nobody_knows_of_leaves_the_table_right(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    rewrite = hands.begin()
    with monkeypatch.context() as context:
        _steps(context, (is_made, LakeError("the catalog is down")))
        context.setattr(Commits, "_has_landed", _silent)
        with pytest.raises(LakeError):
            hands.end(rewrite)
    world.applied(work(eu.one(update(1, 10, SAME), delete(2))))
    assert (len(world.rows()), world.of("eu")[1]) == (7, (10, "x1"))
    assert hands.files == (2 if is_made else 5)


def test_a_commit_without_an_answer_is_known_to_those_who_wait_for_the_table(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = prepared(world)
    spread(world, Sender(), 8)
    rewrite = hands.begin()
    made, since = IcebergTable.commit, []

    def commit(table: IcebergTable, asked: TableCommit) -> object:
        since.append(hands.table.lock.doubtful_since)
        return made(table, asked)

    monkeypatch.setattr(IcebergTable, "commit", commit)
    hands.end(rewrite)
    assert None not in since
    assert since, "it was made"
    assert hands.table.lock.doubtful_since is None


def _silent(*_: object) -> bool:
    raise LakeError("the catalog is down")


def test_rows_are_sorted_if_asked(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 20)
    with hands.table.lock:
        group = FileGroup(files=tuple(facts(hands.table, [*hands.table.index.files], 1 << 27)))
        rewrite = Rewrite.plan(hands.table, [group], world.lake.engine.readers.job(hands.table.definition), ("id",))
    rewrite.write(hands.jobs, 1)
    world.applied(work(eu.one(delete(7), update(8, 88, SAME))))
    before = world.rows()
    hands.end(rewrite)
    assert world.rows() == before
    world.applied(work(eu.one(update(9, 99, SAME), delete(8))))
    assert (world.of("eu")[9], len(world.rows())) == ((99, "x9"), 18)
    ids = [key for key in world.table(TARGET).column("id").to_pylist() if key != 9]
    assert ids == sorted(ids)


def test_the_stream_and_compaction_at_random(world: IcebergWorld) -> None:
    """Programs of changes with an exchange begun and ended anywhere between them; a dictionary is the truth."""
    _at_random(world, 30)


@pytest.mark.slow
def test_the_same_with_position_deletes(old_world: IcebergWorld) -> None:
    _at_random(old_world, 60)


def _at_random(world: IcebergWorld, steps: int) -> None:
    random_ = random.Random(7)  # noqa: S311
    hands = prepared(world, "eu", "us")
    senders = {"eu": Sender(), "us": Sender("us")}
    truth: dict[tuple[str, int], tuple[int, str]] = {}
    rewrite: Rewrite | None = None
    for step in range(steps):
        name = random_.choice(list(senders))
        sender = senders[name]
        if random_.random() < 0.05:
            world.applied(work(sender.truncation()))
            truth = {key: value for key, value in truth.items() if key[0] != name}
        changed = [name] if random_.random() < 0.5 else random_.sample(list(senders), 2)
        changes = [
            senders[one].one(*(_change(random_, one, truth) for _ in range(random_.randrange(1, 12))))
            for one in changed
        ]
        world.applied(work(*changes))
        if random_.random() < 0.4:
            if rewrite is None:
                rewrite = hands.begin()
            else:
                hands.end(rewrite)
                rewrite = None
        if step % 20 == 19:
            hands.table.index.save()
            if rewrite is None:
                hands.table.index.reset()
            assert world.rows() == truth
    assert world.rows() == truth
    oracle_rows = {(r["sid"], r["id"]): (r["n"], r["body"]) for r in world.spark_rows()}
    assert oracle_rows == truth


def test_a_table_that_someone_gives_a_newer_format_goes_on(old_world: IcebergWorld) -> None:
    """Rows that died by position deletes stay dead by the deletion vectors that come in their place."""
    world = old_world
    world.prepare("eu")
    world.copy("eu", *((key, key, "x") for key in range(10)))
    eu = Sender()
    world.applied(work(eu.one(update(1, 11), delete(2), insert(20), insert(21))))
    world.sql(f"ALTER TABLE {world.catalog}.{TARGET} SET TBLPROPERTIES ('format-version'='3')")
    for number in range(3):
        world.applied(work(eu.one(update(1, number), delete(3 + number), insert(30 + number))))
    world.applied(work(eu.one(delete(20))))
    wanted = {0, 1, 6, 7, 8, 9, 21, 30, 31, 32}
    assert world.of("eu").keys() == {row["id"] for row in world.spark_rows()} == wanted
    upkeep = world.lake.maintenance.run(TARGET, full=True)
    assert (upkeep.files, upkeep.delete_files) == (1, 0)
    world.applied(work(eu.one(update(6, 66, SAME))))
    assert (world.of("eu").keys(), world.of("eu")[6], world.of("eu")[1]) == (wanted, (66, "x"), (2, "b"))


def test_after_any_exchange_an_index_read_anew_knows_the_newest_row_of_each_key(world: IcebergWorld) -> None:
    """Of a table that only grows, in which large values that did not change come from the row before."""
    random_ = random.Random(5)  # noqa: S311
    world.lake.prepare(target(table_type=TableType.APPEND), feed(), ITEMS)
    world.copy("eu", *((key, 0, f"copied{key}") for key in range(6)))
    hands, eu = Hands(world), Sender()
    bodies = {key: f"copied{key}" for key in range(6)}
    rows = Counter((key, 0, body) for key, body in bodies.items())
    n = merged = 0

    def change(*keys: int, is_same: bool = False) -> None:
        nonlocal n
        messages = []
        for key in keys:
            n += 1
            bodies[key] = bodies[key] if is_same else f"b{n}"
            messages.append(update(key, n, SAME if is_same else bodies[key]))
            rows[key, n, bodies[key]] += 1
        world.applied(work(eu.one(*messages)))

    for _ in range(6):
        for _ in range(random_.randrange(3)):
            change(*(random_.randrange(6) for _ in range(3)), is_same=random_.random() < 0.5)
        files = sorted(facts(hands.table, [*hands.table.index.files], 1 << 27), key=lambda file: file.age)
        first = random_.randrange(len(files))
        run = files[first : first + random_.randrange(2, 5)]
        if len(run) > 1:
            rewrite = hands.plan(FileGroup(files=tuple(run)))
            rewrite.write(hands.jobs, 1)
            change(random_.randrange(6))  # younger than what is merged
            assert hands.end(rewrite) is not None
            merged += 1
            hands.table.index.reset()  # as after a kill, or without the state folder
        change(*range(6), is_same=True)
    assert merged > 3
    found = world.table(TARGET).to_pylist()
    assert Counter((row["id"], row["n"], row["body"]) for row in found) == rows


def test_the_index_forgets_keys_that_are_gone(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a queue: every row is inserted once and deleted, and a TRUNCATE now and then takes what is left."""
    monkeypatch.setattr("kuvasz.lake.table.checkpoints.CHECKPOINT_ENTRIES", 100)
    hands, eu = prepared(world), Sender()
    most = 0
    for n in range(0, 600, 30):
        gone = [delete(key) for key in range(n - 30, n - 2) if n % 150]
        world.applied(work(*([eu.truncation()] if n and not n % 150 else []),
                           eu.one(*gone, *(insert(key) for key in range(n, n + 30)))))  # fmt: skip
        most = max(most, hands.table.index.places.entries)
    left = {key for _, key in world.rows()}
    assert len(left) < 50
    assert most <= 2 * 50 + 100 + 2 * 100, "600 keys have come and gone"
    again = sorted(left)[:2]
    world.applied(work(eu.one(*(update(key, 7, SAME) for key in again), insert(0), delete(max(left)))))
    assert [world.of("eu")[key] for key in again] == [(7, "b")] * 2
    assert len(world.rows()) == len(left)
    hands.table.index.save()
    hands.table.index.reset()
    world.applied(work(eu.one(update(0, 3, SAME))))
    assert world.of("eu")[0] == (3, "b")


def _change(random_: random.Random, name: str, truth: dict) -> bytes:
    key = random_.randrange(30)
    is_there = (name, key) in truth
    if not is_there:
        truth[name, key] = (key, f"b{key}")
        return insert(key, key, f"b{key}")
    match random_.randrange(3):
        case 0:
            del truth[name, key]
            return delete(key)
        case 1:
            truth[name, key] = (truth[name, key][0] + 1, truth[name, key][1])
            return update(key, truth[name, key][0], SAME)
        case _:
            other = 100 + key
            if (name, other) in truth:
                truth[name, other] = (5, "o")
                return update(other, 5, "o")
            truth[name, other] = (truth[name, key][0], truth[name, key][1])
            del truth[name, key]
            return update(other, truth[name, other][0], SAME, old=key)


def test_orphans_are_removed_and_nothing_else(world: IcebergWorld) -> None:
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    folder = Path(urllib.parse.urlparse(hands.table.definition.location).path) / "data"
    (folder / "kvsz-orphan.parquet").write_bytes(b"x")
    (folder / "others.parquet").write_bytes(b"x")
    (folder / "kvsz-deep").mkdir()
    (folder / "kvsz-deep" / "kvsz-theirs.parquet").write_bytes(b"x")
    abandoned = hands.begin()  # as a kill would leave it
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(50), delete(1)), open_sources=["eu"]))
    written = world.lake.write([work(eu.part(lsn, update(2, 20, SAME)), open_sources=["eu"])])
    orphans = Orphans(world.lake.engine.catalog, 3600.0, folder.parent / "orphans.json")
    orphans.visit(hands.table)
    assert (folder / "kvsz-orphan.parquet").exists(), "it is young"
    removed = orphans.remove(hands.table, -60.0)
    assert sorted(path.rpartition("/")[2] for path in removed) == sorted(
        ["kvsz-orphan.parquet", *(path.rpartition("/")[2] for path in abandoned.paths)]
    )
    assert not (folder / "kvsz-orphan.parquet").exists()
    assert (folder / "others.parquet").exists()
    assert (folder / "kvsz-deep" / "kvsz-theirs.parquet").exists()
    assert all(isinstance(outcome, Receipt) for outcome in world.lake.commit(written))
    world.applied(work(eu.segment([(lsn, [insert(51)])])))
    assert len(world.rows()) == 9
    assert world.of("eu")[2] == (20, "x2")


def test_a_full_maintenance_leaves_no_delete_file(world: IcebergWorld) -> None:
    prepared(world, "eu", "us")
    eu, us = Sender(), Sender("us")
    spread(world, eu, 20)
    spread(world, us, 20)
    world.applied(work(eu.one(delete(1), update(2, 22, SAME)), us.one(delete(7))))
    before = world.rows()
    upkeep = world.lake.maintenance.run(TARGET, full=True)
    assert (upkeep.files, upkeep.delete_files, upkeep.dead_rows, upkeep.rows) == (1, 0, 0, 38)
    assert upkeep.rewritten_bytes > 0
    assert world.rows() == before
    assert _read_as_plain_files(world) == before
    world.applied(work(eu.one(delete(3))))
    assert "clean" not in world.iceberg().refs()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(Rewrite, "write", marks=pytest.mark.slow),
        pytest.param(Snapshots, "expire", marks=pytest.mark.slow),
        (Catalog, "known_files"),
    ],
)
def test_the_stream_does_not_wait_for_what_takes_long(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    prepared(world)
    eu = Sender()
    spread(world, eu, 8)
    folder = Path(urllib.parse.urlparse(world.lake.table(TARGET).definition.location).path) / "data"
    (folder / "kvsz-orphan.parquet").write_bytes(b"x")
    os.utime(folder / "kvsz-orphan.parquet", (1, 1))
    real, waited = getattr(owner, name), []

    def slow(*arguments: object) -> object:
        found = real(*arguments)
        stream = threading.Thread(target=lambda: world.applied(work(eu.one(delete(len(waited))))), daemon=True)
        stream.start()
        stream.join(60)
        waited.append(stream.is_alive())
        return found

    monkeypatch.setattr(owner, name, slow)
    world.lake.maintenance.run(TARGET, full=True)
    assert waited
    assert not any(waited), "a commit waits until it is over"
    assert len(world.rows()) == 8 - len(waited)


def _read_as_plain_files(world: IcebergWorld) -> dict[tuple, tuple]:
    """Read the rows as an engine does that knows data files alone."""
    table = world.iceberg()
    entries = [
        (manifest.content, entry.data_file.file_path)
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    assert all(content == ManifestContent.DATA for content, _ in entries), "the snapshot names no delete file"
    rows = [row for _, path in entries for row in pq.read_table(urllib.parse.urlparse(path).path).to_pylist()]
    found = {(row["sid"], row["id"]): (row["n"], row["body"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_readers_tags_and_branches_keep_their_snapshots(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = prepared(world)
    eu = Sender()
    name = f"{world.catalog}.{TARGET}"
    spread(world, eu, 8)
    first = world.iceberg().current_snapshot().snapshot_id  # nobody names it: it goes
    only_there = {task.file.file_path for task in world.iceberg().scan().plan_files()}
    world.applied(work(eu.one(*(update(key, 1, f"y{key}") for key in range(8)))))
    tagged = world.rows()
    world.sql(f"ALTER TABLE {name} CREATE TAG month")
    world.applied(work(eu.one(*(update(key, 2, f"z{key}") for key in range(8)))))
    branched = world.rows()
    world.sql(f"ALTER TABLE {name} CREATE BRANCH theirs")
    world.applied(work(eu.one(*(update(key, 3, f"w{key}") for key in range(8)))))
    old_until = time.time() + 0.002
    time.sleep(0.004)  # a snapshot has the time of its commit, in milliseconds
    world.applied(work(eu.one(*(update(key, 4, f"v{key}") for key in range(4)))))
    young = world.iceberg().current_snapshot().snapshot_id
    read = world.session.read.option("versionAsOf", young).table(name)
    rows, reading = world.rows(), read.toLocalIterator()
    begun = next(reading)
    world.applied(work(eu.one(delete(0), insert(9))))
    expire = Snapshots.expire
    monkeypatch.setattr(
        Snapshots, "expire", lambda snapshots, _, keep: expire(snapshots, int(old_until * 1000), keep)
    )
    maintainer = world.lake.maintenance.maintainer
    maintainer._config = maintainer._config.model_copy(update={"snapshots_kept": 1})
    world.lake.maintenance.run(TARGET, full=True)
    assert hands.files == 1
    found = {(row.sid, row.id): (row.n, row.body) for row in [begun, *reading]}
    assert found == rows == _as_of(world, young), "one that had begun, and one that begins now"
    assert (_as_of(world, "'month'"), _as_of(world, "'theirs'")) == (tagged, branched)
    known = {snapshot.snapshot_id for snapshot in world.iceberg().metadata.snapshots}
    assert first not in known
    assert young in known
    assert not [path for path in only_there if Path(urllib.parse.urlparse(path).path).exists()]
    assert world.orphans() == []


def test_expiry_keeps_a_file_of_vectors_as_long_as_one_of_them_lives(world: IcebergWorld) -> None:
    prepared(world)
    eu = Sender()
    spread(world, eu, 20, commits=2)
    world.applied(work(eu.one(delete(0), delete(1))))  # a vector for each file, both in one
    for key in (2, 4, 6):
        world.applied(work(eu.one(delete(key))))  # the first file's is another's now
    before = world.rows()
    world.lake.table(TARGET).table.snapshots.expire(int(time.time() * 1000) + 1, 1)
    assert world.snapshots() == 1
    assert world.rows() == before
    assert len(before) == 15


def _as_of(world: IcebergWorld, version: object) -> dict[tuple, tuple]:
    found = world.sql(f"SELECT * FROM {world.catalog}.{TARGET} VERSION AS OF {version}")
    return {(row.sid, row.id): (row.n, row.body) for row in found}


def test_orphans_of_another_table_and_young_ones_stay(world: IcebergWorld) -> None:
    hands = prepared(world)
    world.prepare("eu", name="shop.items_2")
    other = world.lake.table("shop.items_2")
    eu, theirs = Sender(), Sender()
    spread(world, eu, 8)
    world.applied(work(theirs.one(insert(1)), target="shop.items_2"))
    files = []
    for table, name, days in ((hands.table, "old", 4), (hands.table, "young", 2), (other, "old", 4)):
        files.append(Path(urllib.parse.urlparse(table.definition.location).path) / "data" / f"kvsz-{name}.parquet")
        files[-1].write_bytes(b"x")
        os.utime(files[-1], (time.time() - days * 86400,) * 2)
    removed = Orphans(world.lake.engine.catalog, 0.0, files[0].parent.parent / "o").remove(hands.table, 3 * 86400.0)
    assert [path.rpartition("/")[2] for path in removed] == ["kvsz-old.parquet"]
    assert [file.exists() for file in files] == [False, True, True]
    assert len(world.rows()) == 8
    assert len(world.rows("shop.items_2")) == 1


def test_a_table_that_was_renamed_away_keeps_its_files(world: IcebergWorld) -> None:
    """A new one of the earlier name gets the same folder, and knows none of them."""
    hands = prepared(world)
    spread(world, Sender(), 8)
    folder = Path(urllib.parse.urlparse(hands.table.definition.location).path) / "data"
    world.lake.let_go(TARGET)
    world.sql(f"ALTER TABLE {world.catalog}.{TARGET} RENAME TO shop.kept")
    world.prepare("eu")
    made = world.lake.table(TARGET)
    assert Path(urllib.parse.urlparse(made.definition.location).path) == folder.parent
    (folder / "kvsz-orphan.parquet").write_bytes(b"x")
    orphans = Orphans(world.lake.engine.catalog, 0.0, folder.parent / "o")
    assert orphans.remove(made, -60.0) == []
    assert len(world.spark_rows("shop.kept")) == 8
    world.sql(f"DROP TABLE {world.catalog}.shop.kept PURGE")
    assert [path.rpartition("/")[2] for path in orphans.remove(made, -60.0)] == ["kvsz-orphan.parquet"]


def _indexed(caplog: pytest.LogCaptureFixture) -> list[int]:
    """How many files' keys were read each time since the last call."""
    found = [record.files for record in caplog.records if getattr(record, "event", "") == "index_read"]
    caplog.clear()
    return found


def test_of_what_others_did_only_what_is_new_is_read(world: IcebergWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kuvasz")
    hands = prepared(world)
    eu = Sender()
    spread(world, eu, 40)
    name = f"{world.catalog}.{TARGET}"
    world.applied(work(eu.one(update(3, 1, "mine"))))
    assert _indexed(caplog) == []

    world.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ 'eu', 100L, 1, 'theirs'")
    world.applied(work(eu.one(update(4, 1, "mine"), update(100, 2, "mine"))))
    assert _indexed(caplog) == [1], "the file that was inserted"
    assert world.of("eu")[100] == (2, "mine")

    world.sql(f"DELETE FROM {name} WHERE id IN (7, 11)")  # rows of one file: a vector, or a file of positions
    before = hands.files
    world.applied(work(eu.one(update(8, 1, "mine"), insert(7, 5, "again"), delete(11))))
    assert _indexed(caplog) == [], "no file is new"
    assert hands.files == before + 1
    assert world.of("eu")[7] == (5, "again")

    world.sql(f"CALL {world.catalog}.system.rewrite_manifests('{TARGET}')")
    world.sql(f"CALL {world.catalog}.system.expire_snapshots(table => '{TARGET}', retain_last => 1,"
              " older_than => TIMESTAMP '2999-01-01 00:00:00')")  # fmt: skip
    world.applied(work(eu.one(update(12, 1, "mine"))))
    assert _indexed(caplog) == []

    world.sql(f"CALL {world.catalog}.system.rewrite_data_files(table => '{TARGET}',"
              " options => map('rewrite-all', 'true'))")  # fmt: skip
    world.applied(work(eu.one(update(16, 1, "mine"), update(100, 3, "mine"), delete(7))))
    assert _indexed(caplog) == [1], "the one that the others became"
    rows = world.of("eu")
    assert len(rows) == 39
    assert [rows[key] for key in (3, 4, 8, 12, 16)] == [(1, "mine")] * 5
    assert rows[100] == (3, "mine")
    assert {(row["sid"], row["id"]): (row["n"], row["body"]) for row in world.spark_rows()} == world.rows()
    world.lake.maintenance.run(TARGET, full=True)
    assert _read_as_plain_files(world) == world.rows()


def test_a_historys_versions_in_files_that_another_engine_merged_are_those_of_their_sources(
    world: IcebergWorld,
) -> None:
    """Copied again, truncated by the stream and repaired, of several sources whose rows lie in one file."""
    senders = {name: Sender(name) for name in ("eu", "us", "ap")}
    for name in senders:
        world.lake.prepare(target(table_type=TableType.HISTORY), feed(name), ITEMS)
        world.copy(name)
    world.applied(work(*(one.one(insert(1, 1), insert(2, 2), insert(3, 3)) for one in senders.values())))
    _merge(world)
    world.applied(work(senders["eu"].one(insert(4, 4))))
    now = SourcePosition(lsn=10_000, taken_us=50_000 + POSTGRES_EPOCH_US)
    world.lake.forget(TARGET, "eu")
    world.lake.copy(feed("eu"), ITEMS, [Lines(((1, 1, "b"), (2, 9, "b")))], now, lambda *_: None)
    assert _open(world) == {"eu": {1: 1, 2: 9}, **{name: {1: 1, 2: 2, 3: 3} for name in ("us", "ap")}}
    assert len(world.spark_rows()) == 11, "no version is lost"

    _merge(world)
    world.applied(work(senders["us"].truncation()))
    assert _open(world) == {"eu": {1: 1, 2: 9}, "ap": {1: 1, 2: 2, 3: 3}}

    _merge(world)
    world.lake.repair(feed("ap"), ITEMS, [Lines(((1, 1, "b"), (5, 5, "b")))], now, at_us=50_000 + POSTGRES_EPOCH_US)
    _merge(world)
    world.lake.forget(TARGET, "us")
    world.lake.copy(feed("us"), ITEMS, [Lines(((1, 6, "b"),))], now, lambda *_: None)
    assert _open(world) == {"eu": {1: 1, 2: 9}, "ap": {1: 1, 5: 5}, "us": {1: 6}}
    assert len(world.spark_rows()) == 13, "us had no file of its own, and keeps its past"
    later = [Sender(name, start=20_000).one(update(1, 60), insert(3, 30)) for name in ("eu", "ap")]
    world.applied(work(*later))
    assert _open(world) == {"eu": {1: 60, 2: 9, 3: 30}, "ap": {1: 60, 3: 30, 5: 5}, "us": {1: 6}}


def _merge(world: IcebergWorld) -> None:
    """Have another engine put all rows into one file."""
    world.sql(f"CALL {world.catalog}.system.rewrite_data_files(table => '{TARGET}',"
              " options => map('rewrite-all', 'true'))")  # fmt: skip
    assert len(list(world.iceberg().scan().plan_files())) == 1


def _open(world: IcebergWorld) -> dict[str, dict[int, int]]:
    """Sid -> key -> value, of the open versions."""
    found: dict[str, dict[int, int]] = {}
    for row in world.spark_rows():
        if row[system_columns.END].year > 9000:
            assert row["id"] not in found.setdefault(row["sid"], {}), "two versions of a key are open"
            found[row["sid"]][row["id"]] = row["n"]
    return found


def test_the_branch_is_clean_although_the_stream_goes_on(spark_session: object, lake_folder: LakeFolder) -> None:
    world = IcebergWorld(lake_folder, {**QUIET, "clean_branch": True})
    hands = prepared(world)
    eu = Sender()
    for number in (100, 101):
        spread(world, eu, 20)
        world.applied(work(eu.one(delete(1), update(2, 22, SAME))))
        before = world.rows()
        with pytest.MonkeyPatch.context() as context:
            _meanwhile(context, lambda number=number: world.applied(work(eu.one(delete(4), insert(number)))))
            context.setattr("kuvasz.lake.maintenance.maintenance._FULL_PASSES", 1)
            assert world.lake.maintenance.run(TARGET, full=True).delete_files == 1
        table = world.iceberg()
        clean = table.scan(snapshot_id=table.snapshot_by_name("clean").snapshot_id)
        rows = {(row["sid"], row["id"]): (row["n"], row["body"]) for row in clean.to_arrow().to_pylist()}
        assert rows == before
        assert all(not task.delete_files for task in clean.plan_files())
        assert _as_of(world, "'clean'") == before
        del before["eu", 4]
        assert world.rows() == {**before, ("eu", number): (0, "b")}
    world.applied(work(eu.one(update(101, 5, SAME))))
    assert world.of("eu")[101] == (5, "b")
    assert hands.files == 2, "what was whole but for the row that died, and the new version"
    world.lake.close()


def _meanwhile(context: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something between the writing of new files and their commit."""
    real = Rewrite.write

    def write(rewrite: Rewrite, jobs: Jobs, slots: int) -> None:
        real(rewrite, jobs, slots)
        act()

    context.setattr(Rewrite, "write", write)


def test_a_look_at_a_table_that_nothing_happens_to_costs_nothing(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(world)
    world.applied(work(Sender().one(insert(100))))
    maintainer = world.lake.maintenance.maintainer
    maintainer._config = maintainer._config.model_copy(update={"snapshot_age": 3600.0})
    loads = []
    load = Catalog.load
    monkeypatch.setattr(Catalog, "load", lambda catalog, name: (loads.append(name), load(catalog, name))[1])
    maintainer.look()
    assert loads
    loads.clear()
    maintainer.look()
    assert loads == []
    assert maintainer.upkeep()[TARGET].snapshots == 1
    world.applied(work(Sender(start=20000).one(insert(101))))
    maintainer.look()
    assert loads
    assert maintainer.upkeep()[TARGET].snapshots == 2
