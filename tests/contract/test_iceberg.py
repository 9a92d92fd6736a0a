"""What only a lake with a catalog and other writers can meet: lost answers, conflicts, tables that go away."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from kuvasz.errors import ForeignChange, LakeError, LateCommit, OutcomeUnknown, TableError
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.data_file import DataFile, writing
from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format import gaps
from kuvasz.lake.format import source_positions as position_properties
from kuvasz.lake.format.layout import Term
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.lake.format.schema_steps import AddField, RenameField
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table import commits
from kuvasz.model import POSTGRES_EPOCH_US, LakeType, SourcePosition, ValueType
from kuvasz.ports import Failure, Receipt
from kuvasz.verbs.lakeview import LakeView
from tests.support.changes import ITEMS, SAME, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.lake import LakeFolder
from tests.support.worlds import IcebergWorld

pytestmark = pytest.mark.spark

Committing = Callable[[IcebergTable, TableCommit], tuple[int | None, int | None]]


@pytest.fixture
def world(lake_folder: LakeFolder) -> Iterator[IcebergWorld]:
    made = IcebergWorld(lake_folder)
    yield made
    made.lake.close()


class Commits:
    """Stands between a table and the catalog: each commit meets the next of the steps, then all pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[Callable[[], object]], object]) -> None:
        self.count = 0
        real = IcebergTable.commit

        def commit(table: IcebergTable, commit: TableCommit) -> object:
            self.count += 1
            step = steps[self.count - 1] if self.count <= len(steps) else lambda go: go()
            return step(lambda: real(table, commit))

        monkeypatch.setattr(IcebergTable, "commit", commit)


def _lost(go: Callable[[], object]) -> object:
    go()
    raise OutcomeUnknown("table shop.items: the connection was reset")


def _failed(go: Callable[[], object]) -> object:
    raise LakeError("table shop.items: the catalog is down")


def _conflict(go: Callable[[], object]) -> object:
    raise ForeignChange("table shop.items: another writer was faster")


def test_a_lost_answer_is_looked_up_and_nothing_doubled(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"))))
    snapshots = world.snapshots()
    commits = Commits(monkeypatch, _lost, _failed)
    world.applied(work(eu.one(update(2, 2, SAME, old=1), insert(3))))
    assert (commits.count, world.snapshots()) == (1, snapshots + 1)
    world.applied(work(eu.one(update(2, 3, SAME), delete(3))))
    assert (commits.count, world.snapshots()) == (3, snapshots + 2)
    assert world.of("eu") == {2: (3, "x")}
    assert world.orphans() == []


def test_a_lost_answer_of_a_copy_is_looked_up(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    Commits(monkeypatch, _lost)
    world.copy("eu", (1, 1, "x"))
    assert (world.of("eu"), world.snapshots(), world.orphans()) == ({1: (1, "x")}, 1, [])
    world.applied(work(Sender().one(update(1, 2, SAME))))
    assert world.of("eu") == {1: (2, "x")}


def test_a_copy_whose_outcome_nobody_knows_keeps_its_files(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    Commits(monkeypatch, _lost)

    def silent(_: object, __: object) -> bool:
        raise LakeError("table shop.items: the catalog is down")

    with monkeypatch.context() as context:
        context.setattr(commits.Commits, "_has_landed", silent)
        with pytest.raises(LakeError):
            world.copy("eu", (1, 1, "x"))
    assert "eu" not in world.lake.positions(TARGET)
    assert world.lake.stored(TARGET)["eu"].lsn == 1000, "whoever asks the catalog is told"
    assert world.of("eu") == {1: (1, "x")}, "the table can be read: the commit was there"
    assert world.lake.recorded(TARGET)["eu"].lsn == 1000, "it is looked up when somebody asks how far the table is"
    assert world.position("eu") == 1000
    world.applied(work(Sender("eu", start=1500).one(update(1, 9, SAME))))
    assert world.of("eu") == {1: (9, "x")}, "the stream goes on from there"
    world.copy("eu", (1, 2, "y"), (2, 2, "y"), lsn=2000)
    assert world.of("eu") == {1: (2, "y"), 2: (2, "y")}


def test_a_commit_that_meets_another_writer_is_worked_out_again(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2))))
    Commits(monkeypatch, _conflict, _conflict)
    world.applied(work(eu.one(update(1, 2, SAME), delete(2))))
    assert world.of("eu") == {1: (2, "x")}
    assert world.lake.commit_conflicts == 2
    assert world.orphans() == [], "completed rows and delete files of the attempts are gone"


def test_a_conflict_never_loses_parts_of_an_open_transaction(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare("eu")
    eu = Sender()
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(1), insert(2)), open_sources=["eu"]))
    Commits(monkeypatch, _conflict)
    (outcome,) = world.apply(work(eu.segment([(lsn, [insert(3)])])))
    if isinstance(outcome, Failure):
        assert world.rows() == {}
        world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
        world.applied(work(eu.segment([(lsn, [insert(1), insert(2), insert(3)])])))
    assert world.of("eu").keys() == {1, 2, 3}
    assert world.orphans() == []


def test_a_copy_that_meets_another_writer_is_committed_again(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare("us")
    world.lake.prepare(target(), feed("eu"), ITEMS)
    Commits(monkeypatch, _conflict)
    assert world.copy("eu", (1, 1, "x")).rows == 1
    assert world.of("eu") == {1: (1, "x")}
    assert world.orphans() == []


def test_a_table_that_was_dropped_stops_and_others_go_on(world: IcebergWorld) -> None:
    world.prepare("eu")
    world.prepare("eu", name="shop.others")
    eu = Sender()
    world.applied(work(eu.one(insert(1))), work(target="shop.others"))
    world.lake.engine.catalog.drop(TARGET)
    failure, receipt = world.apply(work(eu.one(insert(2))), work(eu.one(insert(5)), target="shop.others"))
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, TableError)
    assert "shop.items" in str(failure.error)
    assert isinstance(receipt, Receipt)
    assert world.of("eu", "shop.others") == {5: (0, "b")}


def test_an_index_saved_in_the_middle_of_a_transaction_knows_only_what_is_visible(world: IcebergWorld) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.truncation(lsn, is_open=True), eu.part(lsn, insert(2)), open_sources=["eu"]))
    world.lake.table(TARGET).index.save()
    world.lake.table(TARGET).open.abandon("eu")
    world.lake.table(TARGET).index.reset()
    world.applied(work(eu.segment([(lsn, [update(1, 2, SAME)])]), abandoned=["eu"]))
    assert world.of("eu") == {1: (2, "x")}


def test_what_cannot_be_read_behind_a_commit_is_an_error_of_the_lake(
    world: IcebergWorld, lake_folder: LakeFolder
) -> None:
    world.prepare("eu")
    world.applied(work(Sender().one(insert(1))))
    table = world.lake.table(TARGET).table
    other = world.lake.engine.catalog.load(TARGET)
    assert other is not None
    other.set_properties({"a": "b"})
    [folder] = lake_folder.folder.glob("**/items/metadata")
    away = folder.rename(folder.with_name("away"))
    folder.touch()
    table._handle.java.operations().requestRefresh()  # as a commit does
    for part, name in ((table, "properties"), (table.schema, "id"), *(
        (table.snapshots, name) for name in ("current_id", "parent_id", "sequence", "count", "oldest_ms")
    )):  # fmt: skip
        with pytest.raises(LakeError, match=r"table shop\.items: "):
            getattr(part, name)
    for read in (table.schema.read, table.layout.read, table.schema.earlier_columns):
        with pytest.raises(LakeError, match=r"table shop\.items: "):
            read()
    folder.unlink()
    away.rename(folder)
    assert table.schema.read().fields


def test_another_process_goes_on_where_this_one_stopped(world: IcebergWorld, lake_folder: LakeFolder) -> None:
    world.prepare("eu")
    eu = Sender()
    first = eu.one(insert(1, 1, "x"), insert(2))
    world.applied(work(first))
    world.lake.close()
    later = IcebergWorld(lake_folder)
    later.lake.prepare(target(), feed("eu"), ITEMS)
    stored = SourcePosition(lsn=1108, commit_lsn=1100, rows=2, system_id="7001", commit_us=11000)
    assert later.lake.positions(TARGET)["eu"] == stored
    later.applied(work(first, eu.one(update(1, 2, SAME), delete(2))))
    assert later.of("eu") == {1: (2, "x")}
    later.lake.close()


def test_a_copy_of_a_source_that_was_copied_before_keeps_nothing_of_it(world: IcebergWorld) -> None:
    world.prepare("eu")
    eu = Sender()
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(1)), open_sources=["eu"]))
    world.lake.copy(feed("eu"), ITEMS, [Lines(((5, 5, "b"),))], SourcePosition(lsn=lsn + 8), lambda *_: None)
    world.applied(work(eu.one(insert(6))))
    assert world.of("eu").keys() == {5, 6}
    assert world.orphans() == []


@pytest.mark.parametrize(("partition_by", "expected"), [((), (1, 1)), (("sid",), (16, 1))])
def test_a_query_for_one_sid_plans_its_files_alone_partitioned_or_not(
    world: IcebergWorld, partition_by: tuple[str, ...], expected: tuple[int, int]
) -> None:
    """Small sources share a file; partitioned they have as many files, of which a query for one sid plans one."""
    sources = [f"s{number}" for number in range(16)]
    for source in sources:
        world.lake.prepare(dataclasses.replace(target(), partition_by=partition_by), feed(source), ITEMS)
        world.copy(source)
    world.applied(work(*(Sender(source).one(insert(1), insert(2)) for source in sources)))
    table = world._iceberg(TARGET)
    planned = list(table.scan().plan_files()), list(table.scan(row_filter=EqualTo("sid", "s3")).plan_files())
    assert tuple(map(len, planned)) == expected


def test_a_file_of_many_rows_is_read_by_several_tasks(world: IcebergWorld) -> None:
    """Iceberg's planner divides a file where its entry names offsets, and nowhere else."""
    world.prepare("eu")
    table = world.lake.engine.catalog.load(TARGET)
    schema, rows = world.lake.table(TARGET).definition.schema.arrow(), 300_000  # of 131,072 each row group
    columns = {"sid": ["eu"] * rows, "id": range(rows), "n": [0] * rows, "body": [""] * rows}
    with writing({}, f"{table.location}/data/large.parquet", schema) as writer:
        writer.write(pa.table(columns, schema=schema))
        file = writer.close()
    table.commit(TableCommit(snapshot_id=None, properties={}, summary={}, data_files=[file.json]))
    frame = world.session.read.option("split-size", 1 << 16).table(f"{world.catalog}.{TARGET}")
    assert frame._jdf.queryExecution().toRdd().getNumPartitions() == 3
    assert frame.count() == rows


def test_a_repair_changes_only_what_differs_and_sets_the_position(world: IcebergWorld) -> None:
    world.prepare("eu", "us")
    world.copy("eu", *[(number, 0, "x") for number in range(1, 60)], lsn=1000)
    us, eu = Sender("us"), Sender("eu")
    world.applied(work(us.one(insert(1, 5, "us"))))
    world.applied(work(eu.one(update(7, 1, "y"), delete(8), insert(100, 0, "gone"))))
    rows = {number: (0, "x") for number in range(1, 60) if number not in {11, 12}} | {13: (None, "x"), 200: (1, None)}
    snapshots, read = world.snapshots(), []

    def repair(lsn: int) -> Receipt:
        now = [(key, *values) for key, values in rows.items()]
        at = SourcePosition(lsn=lsn, system_id="7001")
        return world.lake.repair(
            feed("eu"), ITEMS, [Lines(now[:20]), Lines(now[20:])], at, lambda *fact: read.append(fact)
        )

    receipt = repair(9000)
    assert receipt.rows == 7, "7 and 13 changed, 8 and 200 are missing, 11, 12 and 100 are too many"
    assert world.of("eu") == rows
    assert world.of("us") == {1: (5, "us")}
    assert world.position("eu") == 9000
    assert world.snapshots() == snapshots + 1
    assert world.orphans() == []
    assert ("sum up the source", 2, 2) in read
    eu = Sender("eu", start=9500)
    world.applied(work(eu.one(update(7, 3, "z"), update(200, 4, SAME), delete(13))))
    del rows[13]
    rows |= {7: (3, "z"), 200: (4, None)}
    assert world.of("eu") == rows, "the index knows the mended rows"
    snapshots = world.snapshots()
    assert repair(20000).rows == 0
    assert (world.position("eu"), world.snapshots()) == (20000, snapshots), "the position moves alone"
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    assert world.lake.positions(TARGET)["eu"].lsn == 20000


def _late(world: IcebergWorld, lsn: int) -> tuple[IcebergTable, TableCommit]:
    """A process that was killed, and the commit its JVM has yet to send: it appends a row and moves the position."""
    table = world.lake.engine.catalog.load(TARGET)
    properties = {"kuvasz.position.eu": position_properties.render(SourcePosition(lsn=lsn, system_id="7001"))}
    file = write_file(world, table)
    return table, TableCommit(
        snapshot_id=table.snapshots.current_id, properties=properties, summary=properties, data_files=[file.json]
    )


def write_file(world: IcebergWorld, table: IcebergTable) -> DataFile:
    schema = world.lake.table(TARGET).definition.schema.arrow()
    rows = pa.Table.from_pylist([{"sid": "eu", "id": 77, "n": 0, "body": "late"}], schema=schema)
    with writing({}, f"{table.location}/data/late.parquet", schema) as writer:
        writer.write(rows)
        return writer.close()


def test_schema_and_layout_change_though_another_commit_comes_first(world: IcebergWorld) -> None:
    world.prepare("eu")
    mine = world.lake.table(TARGET).table
    mine.refresh()
    other = world.lake.engine.catalog.load(TARGET)
    assert other is not None
    other.set_properties({"owner": "someone"})
    now = mine.layout.read()
    mine.layout.replace(now, dataclasses.replace(now, partition=(Term(column="n", transform="identity"),)))
    schemas = []

    def properties(schema: LakeSchema) -> dict[str, str]:
        if not schemas:
            other.set_properties({"owner": "someone else"})
        schemas.append(schema)
        return {"seen": str(schema.by_name("new") is not None)}

    mine.schema.change([AddField(Field(field_id=99, name="new", type=ValueType(kind=LakeType.INT)))], properties)
    assert (mine.layout.read().partition, mine.properties["seen"]) == (
        (Term(column="n", transform="identity"),),
        "True",
    )
    assert (mine.properties["owner"], len(schemas)) == ("someone else", 2)


def test_two_who_change_the_schema_at_once_are_told(world: IcebergWorld) -> None:
    world.prepare("eu")
    mine, other = world.lake.table(TARGET).table, world.lake.engine.catalog.load(TARGET)
    assert other is not None

    def properties(_: LakeSchema) -> dict[str, str]:
        other.schema.change([RenameField("n", "m")], lambda _: {})
        return {}

    with pytest.raises(ForeignChange):
        mine.schema.change([RenameField("n", "o")], properties)
    assert mine.schema.read().by_name("m") is not None


def test_a_commit_of_a_killed_process_cannot_land_behind_those_of_the_next(world: IcebergWorld) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 0, "x"))
    table, late = _late(world, 1208)
    world.applied(work(Sender().one(insert(2))))
    with pytest.raises(ForeignChange):
        table.commit(late)
    assert world.of("eu").keys() == {1, 2}


def test_a_table_begins_again_behind_a_late_commit_of_a_killed_process(world: IcebergWorld) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 0, "x"))
    eu = Sender()
    world.applied(work(eu.one(insert(2))))
    table, late = _late(world, 1208)
    table.commit(late)
    with pytest.raises(LakeError, match="another process has committed changes of source eu"):
        world.lake.tags.add(TARGET, "cut_late", 60.0)
    (outcome,) = world.apply(work(eu.one(insert(3))))
    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, LateCommit)
    assert outcome.error.message == "table shop.items: another process has committed changes of source eu"
    assert world.position("eu") == 1208
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    assert world.of("eu").keys() == {1, 2, 77}
    world.applied(work(eu.one(insert(4))))
    assert world.of("eu").keys() == {1, 2, 77, 4}, "and 3, which the late commit had, is skipped"


def test_no_snapshot_is_of_a_time_before_a_transaction_that_it_shows(world: IcebergWorld) -> None:
    """One that was replicated has the time of its own server, and may be the last one of a commit."""
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1))))
    newer = eu.transactions([insert(2)], [insert(3)])
    first, second = newer.transactions.commit_us[0], newer.transactions.commit_us[0] - 500
    newer.transactions.commit_us[1] = second
    world.applied(work(newer))
    seen = LakeView(world.config).lineage(TARGET)
    assert seen is not None
    before, after = seen.lineage.steps[-2:]
    times = [int(us) + POSTGRES_EPOCH_US for us in (second, first - 1, first)]
    assert [seen.lineage.at_time(us) for us in times] == [before, before, after]


def test_a_tag_names_what_another_writer_has_mended(world: IcebergWorld) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 0, "x"), (2, 0, "x"))
    world.sql(f"UPDATE {world.catalog}.{TARGET} SET body = 'mended' WHERE id = 2")
    tagged = world.lake.tags.add(TARGET, "cut_now", 60.0)
    assert tagged == world.iceberg().current_snapshot().snapshot_id
    world.applied(work(Sender().one(insert(3))))
    assert world.of("eu").keys() == {1, 2, 3}


def test_commits_inside_the_jvm_and_call_by_call_are_the_same(world: IcebergWorld) -> None:
    catalog = world.lake.engine.catalog
    inside = catalog.classes.calls
    assert inside is not catalog.classes.plain

    def told(name: str) -> list[dict[str, str]]:
        """Lives through inserts, updates, deletes, a file that dies and no change at all."""
        world.prepare(name)
        world.copy(name, *((number, 0, "x") for number in range(20)))
        source = Sender(name)
        world.applied(work(source.one(insert(30), insert(31), insert(32))))
        world.applied(work(source.one(update(1, 7, "y"), delete(2), delete(30))))
        world.applied(work(source.one(delete(31), delete(32), delete(3))))
        rows = world.sql(f"SELECT operation, summary FROM {world.catalog}.{TARGET}.snapshots ORDER BY committed_at")
        return [
            {"operation": row.operation}
            | {key: value for key, value in row.summary.items() if key.startswith(("added-", "deleted-", "removed-"))
               and not key.endswith("-size")}
            for row in rows
        ]  # fmt: skip

    first = told("eu")
    catalog.classes.calls = catalog.classes.plain
    second = told("us")[len(first) :]
    catalog.classes.calls = inside
    assert len(first) == 4
    assert first == second
    assert world.of("eu").keys() == world.of("us").keys()


def test_what_a_commit_has_written_is_known_without_being_read(world: IcebergWorld) -> None:
    """To read it takes as long as all else of the commit, where a table has thousands of sources."""
    world.prepare("eu")
    eu, table = Sender(), world.lake.table(TARGET).table

    def check() -> None:
        known = table._handle.java.operations().current()
        file = Path(urlsplit(str(known.metadataFileLocation())).path)
        told = table._handle.classes.jvm.org.apache.iceberg.TableMetadataParser.toJson(known)
        assert json.loads(told) == json.loads(file.read_text())
        away = file.rename(file.with_suffix(".away"))
        table.look()  # the catalog names the same file
        away.rename(file)

    for changes in ([insert(1), insert(2)], [update(1, 7, "y"), delete(2)], [delete(1)]):
        world.applied(work(eu.one(*changes)))
        check()
    table.commit(TableCommit(snapshot_id=None, properties={"a": "b"}, summary={}, removed_properties=[]))
    check()
    other = world.lake.engine.catalog.load(TARGET)
    other.set_properties({"a": "c"})
    assert table.look().snapshot_id == other.snapshots.current_id
    assert table.properties["a"] == "c", "another writer's commit is seen as ever"
    world.applied(work(eu.one(insert(3))))
    check()


@pytest.mark.parametrize("is_inside", [True, False])
def test_both_kinds_of_commit_tell_of_a_conflict_and_of_what_is_now(world: IcebergWorld, *, is_inside: bool) -> None:
    catalog = world.lake.engine.catalog
    catalog.classes.calls = catalog.classes.calls if is_inside else catalog.classes.plain
    world.prepare("eu")
    world.copy("eu", (1, 0, "x"))
    table, late = _late(world, 1208)
    before = table.look()
    assert (before.snapshot_id, before.parent_id) == (table.snapshots.current_id, None)
    assert before.schema_id == table.schema.id
    world.applied(work(Sender().one(insert(2))))
    with pytest.raises(ForeignChange):
        table.commit(late)
    assert table.look().parent_id == before.snapshot_id
    properties = TableCommit(
        snapshot_id=None,
        properties={"a": 'b "c" \\ é', "d": ""},
        summary={},
        removed_properties=["kuvasz.position.eu"],
    )
    assert table.commit(properties) == (table.snapshots.current_id, before.snapshot_id)
    assert (table.properties["a"], table.properties["d"]) == ('b "c" \\ é', "")
    assert "kuvasz.position.eu" not in table.properties
    missing = dataclasses.replace(
        late, snapshot_id=table.snapshots.current_id, data_files=[], removed_files=late.data_files
    )
    with pytest.raises(ForeignChange):
        table.commit(missing)


def test_properties_and_files_are_the_same_inside_the_jvm_and_one_by_one(world: IcebergWorld) -> None:
    catalog = world.lake.engine.catalog
    for source in ("eu", "us"):
        world.prepare(source)
        world.copy(source, *((number, 0, "x") for number in range(20)))
    world.applied(work(Sender("eu").one(update(1, 7, "y"), delete(2))))
    table = catalog.load(TARGET)
    assert table is not None

    def told() -> tuple[dict[str, str], list[LiveFile]]:
        return table.properties, list(table.live_files(in_order=True))

    inside = told()
    catalog.classes.calls = catalog.classes.plain
    assert told() == inside
    properties, files = inside
    assert {"kuvasz.seed", "kuvasz.position.eu", "kuvasz.position.us"} <= properties.keys()
    assert [file.sequence for file in files] == [1, 2, 3]
    assert [len(file.deletes) for file in files] == [1, 0, 0]


@pytest.mark.parametrize("differs", [True, False])
def test_a_repair_of_a_source_that_was_followed_notes_its_gap_whole(world: IcebergWorld, *, differs: bool) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 0, "a"), lsn=1000)
    at = SourcePosition(lsn=9000, system_id="7001")
    world.lake.repair(feed("eu"), ITEMS, [Lines([(1, int(differs), "a")])], at, lambda *_: None, at_us=5, gap_lsn=800)
    found = gaps.parse(world.iceberg().properties, "eu", TARGET)
    assert [(gap.from_lsn, gap.to_lsn, gap.until_us) for gap in found] == [(800, 9000, 5)]
    assert world.lake.notes.gap(TARGET, "eu") is None
