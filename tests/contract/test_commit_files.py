"""How commits write to a store: nothing is seen before all of it has arrived, and what is known is not read again."""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.events import Event
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.jvm import commit_files
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.jvm.joint.joint_commit import StagedCommit
from tests.support.changes import SAME, TARGET, Sender, delete, insert, update, work
from tests.support.lake import LakeFolder
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.worlds import IcebergWorld

pytestmark = pytest.mark.spark

#: py4j remembers methods by the name of the class.
_NUMBERS = itertools.count(1)

#: A file that is not there: nobody reads it.
DATA = (
    '{"spec-id": 0, "content": "data", "file-path": "%s/data/1.parquet", "file-format": "parquet", "partition": [], '
    '"file-size-in-bytes": 1, "record-count": 2}'
)

#: A FileIO that notes what it reads, and may refuse to write some files.
_TOLD = """
package kuvasz;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.exceptions.RuntimeIOException;

public class %(name)s implements FileIO {
  private final FileIO inner;
  private final ConcurrentLinkedQueue reads = new ConcurrentLinkedQueue();
  private final ConcurrentLinkedQueue writes = new ConcurrentLinkedQueue();
  private String refused = "";

  public %(name)s(FileIO inner) { this.inner = inner; }

  public String reads() { return all(this.reads); }

  public String writes() { return String.join("\\n", new ArrayList(this.writes)); }

  private static String all(ConcurrentLinkedQueue queue) {
    String found = String.join("\\n", new ArrayList(queue));
    queue.clear();
    return found;
  }

  public void begin() { this.writes.clear(); }

  public void refuse(String refused) { this.refused = refused; }

  public static %(name)s put(TableOperations operations) throws Exception {
    Field field = operations.getClass().getDeclaredField("fileIO");
    field.setAccessible(true);
    FileIO io = (FileIO) field.get(operations);
    if (io.getClass().getName().indexOf("CommitFiles") >= 0) {
      Field inner = io.getClass().getDeclaredField("inner");
      inner.setAccessible(true);
      io = (FileIO) inner.get(io);
    }
    %(name)s told = new %(name)s(io);
    field.set(operations, told);
    return told;
  }

  public InputFile newInputFile(String path) {
    this.reads.add(path);
    return this.inner.newInputFile(path);
  }

  public OutputFile newOutputFile(final String path) {
    this.writes.add(path);
    final OutputFile file = this.inner.newOutputFile(path);
    if (this.refused.isEmpty() || path.indexOf(this.refused) < 0) {
      return file;
    }
    return new OutputFile() {
      public PositionOutputStream create() {
        throw new RuntimeIOException(new IOException("the store refuses " + path));
      }
      public PositionOutputStream createOrOverwrite() { return this.create(); }
      public String location() { return path; }
      public InputFile toInputFile() { return file.toInputFile(); }
    };
  }

  public void deleteFile(String path) { this.inner.deleteFile(path); }

  public Map properties() { return this.inner.properties(); }

  public void close() { this.inner.close(); }
}
"""


class Stored:
    """A table whose files count as a store's, though they are in a folder.

    Args:
        world: Its world, in which it is prepared.
    """

    def __init__(self, world: IcebergWorld) -> None:
        self.table: IcebergTable = world.lake.table(TARGET).table
        self.handle = self.table._handle
        self.handle.is_local = False
        jvm = self.handle.classes.jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        name = f"Told{next(_NUMBERS)}"
        compiler.cook(_TOLD % {"name": name})
        methods = compiler.getClassLoader().loadClass(f"kuvasz.{name}").getMethods()
        self._put = next(one for one in methods if one.getName() == "put")
        self.told = self.put_back()

    def put_back(self) -> Any:
        """Stand between the table and its files."""
        arguments = self.handle.classes.jvm.java.util.ArrayList()
        arguments.add(self.handle.java.operations())
        self.told = self._put.invoke(None, arguments.toArray())
        return self.told

    def asked(self, ending: str = "") -> list[str]:
        """Return the names of the files that were read since the last look."""
        found = [str(path).rpartition("/")[2] for path in str(self.told.reads()).split()]
        return [name for name in found if name.endswith(ending)]

    def location(self) -> str:
        """Return where the catalog says that the metadata is."""
        self.table.refresh()
        return str(self.handle.java.operations().current().metadataFileLocation())

    def written(self) -> str:
        """Return the names of all files that were written since `begin`."""
        return str(self.told.writes())

    def forget(self, monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
        """Have what was written so far be unknown, as in a new process, with other bounds perhaps."""
        for name, value in bounds.items():
            monkeypatch.setattr(commit_files, f"_{name}", value)
        fresh = commit_files.install(self.handle.classes.jvm)
        assert fresh is not None
        monkeypatch.setattr(self.handle.classes, "_commit_files", fresh)
        self.put_back()
        self.asked()

    def unnamed(self, world: IcebergWorld) -> set[str]:
        """Return the manifests and lists that no snapshot names."""
        table = world.iceberg()
        named = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
        for snapshot in table.metadata.snapshots:
            named |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
        folder = Path(self.table.location.removeprefix("file://")) / "metadata"
        return {file.name for file in folder.glob("*.avro")} - {path.rpartition("/")[2] for path in named}


@pytest.fixture
def world(lake_folder: LakeFolder) -> Iterator[IcebergWorld]:
    made = IcebergWorld(lake_folder)
    made.prepare("eu")
    yield made
    made.lake.close()


@pytest.fixture
def stored(world: IcebergWorld) -> Stored:
    return Stored(world)


def test_a_file_that_does_not_arrive_fails_the_commit_before_the_catalog_is_asked(
    world: IcebergWorld, stored: Stored
) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"))))
    before = stored.location()
    stored.told.begin()
    stored.told.refuse("-m0.avro")

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        applied = pool.submit(world.applied, work(eu.one(update(1, 2, SAME), insert(2, 2, "y"))))
        try:
            wait_until(lambda: stored.written().count("snap-") >= 2, "it is tried again")
            assert ".metadata.json" not in stored.written()
            assert stored.location() == before
        finally:
            stored.told.refuse("")
        applied.result(PATIENCE_S)

    assert world.of("eu") == {1: (2, "x"), 2: (2, "y")}
    assert world.orphans() == []
    assert stored.unnamed(world) == set()


def test_what_was_written_is_not_read_again(world: IcebergWorld, stored: Stored) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2, 1, "y"))))
    stored.asked()

    for number in range(2, 5):
        world.applied(work(eu.one(update(1, number, SAME))))

    assert stored.asked() == []
    world.applied(work(eu.one(delete(2))))
    assert world.of("eu") == {1: (4, "x")}


def test_a_process_that_remembers_nothing_reads_each_manifest_once(
    world: IcebergWorld, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu = Sender()
    for number in range(1, 4):
        world.applied(work(eu.one(update(1, number, "x"))))
    stored.forget(monkeypatch)

    world.applied(work(eu.one(update(1, 4, SAME))))

    manifests = stored.asked(".avro")
    assert manifests
    assert len(manifests) == len(set(manifests))
    assert world.of("eu") == {1: (4, "x")}


def test_another_writers_commit_is_seen(world: IcebergWorld, stored: Stored) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2, 1, "y"))))
    other = world.lake.engine.catalog.load(TARGET)
    assert other is not None
    other.touch({"owner": "somebody"})
    theirs = other.snapshots.current_id

    world.applied(work(eu.one(update(1, 2, SAME))))

    assert world.of("eu") == {1: (2, "x"), 2: (1, "y")}
    assert stored.table.properties["owner"] == "somebody"
    assert stored.table.snapshots.parent_id == theirs
    assert stored.unnamed(world) == set()


@pytest.mark.parametrize("bounds", [{"LARGEST": 100}, {"ON_THEIR_WAY": 0}, {"REMEMBERED": 0}, {"AHEAD": 0}])
def test_where_there_is_no_room_it_is_written_and_read_as_it_comes(
    world: IcebergWorld, stored: Stored, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int]
) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2, 1, "y"))))
    stored.forget(monkeypatch, **bounds)

    for number in range(2, 4):
        world.applied(work(eu.one(update(1, number, SAME))))

    assert world.of("eu") == {1: (3, "x"), 2: (1, "y")}
    assert stored.unnamed(world) == set()


def test_what_is_shown_with_other_tables_has_arrived_before(world: IcebergWorld, stored: Stored) -> None:
    joint = world.lake.engine.catalog.joint()
    before = stored.location()

    def stage() -> StagedCommit:
        commit = TableCommit(
            snapshot_id=stored.table.snapshots.current_id, properties={"kuvasz.commit": "a"}, summary={},
            data_files=[DATA % stored.table.location],
        )  # fmt: skip
        return stored.table.stage(commit, joint)

    stored.told.begin()
    for refused in ("-m0.avro", "snap-", ".metadata.json"):
        stored.told.refuse(refused)
        with pytest.raises(LakeError, match="the store refuses"):
            stage()
        assert stored.location() == before
    stored.told.refuse("")
    staged = stage()
    assert stored.location() == before
    assert joint.swap([staged]) == []
    assert stored.location() in stored.written()
    assert stored.unnamed(world) == set()


def test_a_table_that_it_does_not_know_is_left_as_it_is(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    jvm = stored.handle.classes.jvm
    files = commit_files.install(jvm)
    assert files is not None
    kind = jvm.org.apache.iceberg.MetadataTableType.FILES
    other = jvm.org.apache.iceberg.MetadataTableUtils.createMetadataTableInstance(stored.handle.java, kind)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert files.for_commit("shop.items", other) == (other, False)
            files.arrive(other)
    assert [record.getMessage() for record in caplog.records] == [Event.COMMIT_FILES_PLAIN.message]
