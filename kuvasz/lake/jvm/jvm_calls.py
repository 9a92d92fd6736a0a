"""Within the driver's JVM: one call from Python for what would take some sixty.

Each call through py4j costs driver and JVM a tenth of a millisecond or two, and the object it returns another one
when it is let go; the end of an iterator is an exception, and to tell which one PySpark asks the JVM a dozen
questions. Over a hundred tables that is most of a commit, and of a start. The class below does what `PlainCalls`
does call by call. Like `kuvasz.lake.jvm.localfs` it is compiled by Janino, which Spark brings, so that
kuvasz needs no jar of its own.

Long answers are bytes: py4j looks at each character of a text.

A commit goes through `Once`. Catalogs are asked once more where a connection was lost or a gateway saw fit, and what
they have taken by then is in the way of itself: they say that another writer came first. Iceberg would work the
commit out anew upon what it finds, its own snapshot, take the files in that for a conflict, and remove the manifests
of what is refused then: those of the newest snapshot, which nobody could read any more.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError

from kuvasz.events import Event, EventLog
from kuvasz.lake.format.table_identity import BRANCH_PROPERTY
from kuvasz.lake.jvm.table_operations import PASSED_ON, WRITTEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kuvasz.lake.files.commit import TableCommit

_log = EventLog(__name__)

#: py4j remembers methods by the name of the class, so each one that is compiled needs its own.
_NUMBERS = itertools.count(1)

#: Files that are told of at once.
_FILES = 1000

_SOURCE = """
package kuvasz;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.Transactions;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DelegateFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.SupportsBulkOperations;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.util.JsonUtil;
import %(node)s;

public class %(name)s {
  public String look(Table table) {
    table.refresh();
    Snapshot snapshot = this.head(table);
    String id = snapshot == null ? "-" : String.valueOf(snapshot.snapshotId());
    String parent = snapshot == null || snapshot.parentId() == null ? "-" : String.valueOf(snapshot.parentId());
    long sequence = snapshot == null ? 0 : snapshot.sequenceNumber();
    int format = ((HasTableOperations) table).operations().current().formatVersion();
    return id + " " + parent + " " + table.schema().schemaId() + " " + sequence + " " + format;
  }

  public Snapshot head(Table table) {
    String branch = (String) table.properties().get("%(branch)s");
    Snapshot found = branch == null ? null : table.snapshot(branch);
    return found == null ? table.currentSnapshot() : found;
  }

  public byte[] properties(Table table, String seen) throws Exception {
    String location = ((HasTableOperations) table).operations().current().metadataFileLocation();
    if (location != null && location.equals(seen)) {
      return null;
    }
    String text = JsonUtil.mapper().writeValueAsString(table.properties());
    return ((location == null ? "" : location) + "\\n" + text).getBytes("UTF-8");
  }

  public String property(Table table, String name) {
    return (String) table.properties().get(name);
  }

  public CloseableIterable scan(Table table, String bounded) {
    TableScan scan = table.newScan();
    String branch = (String) table.properties().get("%(branch)s");
    if (branch != null && table.snapshot(branch) != null) {
      scan = (TableScan) scan.useRef(branch);
    }
    if (table.schema().findField(bounded) != null) {
      scan = (TableScan) scan.includeColumnStats(Collections.singletonList(bounded));
    }
    return scan.planFiles();
  }

  public byte[] some(Table table, Iterator tasks, int most) throws Exception {
    StringBuilder text = new StringBuilder();
    for (int count = 0; count < most && tasks.hasNext(); count++) {
      FileScanTask task = (FileScanTask) tasks.next();
      DataFile file = (DataFile) task.file();
      PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
      text.append(count == 0 ? '[' : ',').append('[').append(file.dataSequenceNumber()).append(',');
      text.append(ContentFileParser.toJson(file, spec)).append(',').append('[');
      for (Iterator i = task.deletes().iterator(); i.hasNext();) {
        text.append(ContentFileParser.toJson((DeleteFile) i.next(), spec)).append(i.hasNext() ? "," : "");
      }
      text.append(']').append(']');
    }
    return (text.length() == 0 ? "" : text.append(']').toString()).getBytes("UTF-8");
  }

  public Transaction begin(Table table) {
    return Transactions.newTransaction(table.name(), new Once(((HasTableOperations) table).operations()));
  }

  public String commit(Table table, String text, ExecutorService direct) throws Exception {
    Transaction transaction = this.begin(table);
    this.fill(table, transaction, text, direct);
    transaction.commitTransaction();
    return this.look(table);
  }

  public void fill(Table table, Transaction transaction, String text, ExecutorService direct) throws Exception {
    JsonNode commit = JsonUtil.mapper().readTree(text);
    UpdateProperties update = transaction.updateProperties();
    for (Iterator i = commit.get("properties").fields(); i.hasNext();) {
      Map.Entry entry = (Map.Entry) i.next();
      update.set((String) entry.getKey(), ((JsonNode) entry.getValue()).asText());
    }
    for (Iterator i = commit.get("removed_properties").elements(); i.hasNext();) {
      update.remove(((JsonNode) i.next()).asText());
    }
    update.commit();
    if (commit.has("is_swap")) {
      this.swapFiles(table, transaction, commit, direct);
    } else if (commit.has("data_files")) {
      this.changeRows(table, transaction, commit, direct);
    }
  }

  private void swapFiles(Table table, Transaction transaction, JsonNode commit, ExecutorService direct) {
    RewriteFiles rewrite = transaction.newRewrite();
    this.begin(table, rewrite, direct);
    for (Iterator i = this.files(table, commit, "removed_files"); i.hasNext();) {
      rewrite.deleteFile((DataFile) i.next());
    }
    for (Iterator i = this.files(table, commit, "removed_deletes"); i.hasNext();) {
      rewrite.deleteFile((DeleteFile) i.next());
    }
    for (Iterator i = this.files(table, commit, "data_files"); i.hasNext();) {
      rewrite.addFile((DataFile) i.next());
    }
    for (Iterator i = this.files(table, commit, "added_deletes"); i.hasNext();) {
      rewrite.addFile((DeleteFile) i.next());
    }
    rewrite.validateFromSnapshot(commit.get("snapshot_id").asLong());
    if (commit.has("sequence")) {
      rewrite.dataSequenceNumber(commit.get("sequence").asLong());
    }
    this.end(rewrite, commit);
  }

  private void changeRows(Table table, Transaction transaction, JsonNode commit, ExecutorService direct) {
    RowDelta delta = transaction.newRowDelta();
    this.begin(table, delta, direct);
    for (Iterator i = this.files(table, commit, "data_files"); i.hasNext();) {
      delta.addRows((DataFile) i.next());
    }
    for (Iterator i = this.files(table, commit, "added_deletes"); i.hasNext();) {
      delta.addDeletes((DeleteFile) i.next());
    }
    for (Iterator i = this.files(table, commit, "removed_deletes"); i.hasNext();) {
      delta.removeDeletes((DeleteFile) i.next());
    }
    for (Iterator i = this.files(table, commit, "removed_files"); i.hasNext();) {
      delta.removeRows((DataFile) i.next());
    }
    if (commit.has("snapshot_id")) {
      delta.validateFromSnapshot(commit.get("snapshot_id").asLong());
    }
    delta.validateNoConflictingDataFiles();
    delta.validateNoConflictingDeleteFiles();
    if (commit.has("existing")) {
      delta.validateDeletedFiles();
      List paths = new ArrayList();
      for (Iterator i = commit.get("existing").elements(); i.hasNext();) {
        paths.add(((JsonNode) i.next()).asText());
      }
      delta.validateDataFilesExist(paths);
    }
    this.end(delta, commit);
  }

  private void begin(Table table, SnapshotUpdate update, ExecutorService direct) {
    String branch = (String) table.properties().get("%(branch)s");
    if (branch != null) {
      update.toBranch(branch);
    }
    if (direct != null) {
      update.scanManifestsWith(direct);
      update.writeManifestsWith(direct, 1);
    }
  }

  private void end(SnapshotUpdate update, JsonNode commit) {
    for (Iterator i = commit.get("summary").fields(); i.hasNext();) {
      Map.Entry entry = (Map.Entry) i.next();
      update.set((String) entry.getKey(), ((JsonNode) entry.getValue()).asText());
    }
    update.commit();
  }

  private Iterator files(Table table, JsonNode commit, String name) {
    List files = new ArrayList();
    for (Iterator i = commit.get(name).elements(); i.hasNext();) {
      JsonNode file = (JsonNode) i.next();
      PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.get("spec-id").asInt()));
      files.add(ContentFileParser.fromJson(file, spec));
    }
    return files.iterator();
  }

  static class Once implements TableOperations {
    private final TableOperations inner;

    Once(TableOperations inner) {
      this.inner = inner;
    }

    public void commit(TableMetadata base, TableMetadata metadata) {
      Written written = Written.begin(this.inner);
      try {
        this.inner.commit(base, metadata);
        if (written != null) {
          written.keep(base, metadata);
        }
      } catch (CommitFailedException error) {
        if (!this.isThere(base, metadata, error)) {
          throw error;
        }
      } finally {
        if (written != null) {
          written.end();
        }
      }
    }

    private boolean isThere(TableMetadata base, TableMetadata metadata, CommitFailedException error) {
      TableMetadata now;
      try {
        now = this.inner.refresh();
      } catch (RuntimeException other) {
        error.addSuppressed(other);
        throw new CommitStateUnknownException(error);
      }
      for (Iterator i = metadata.snapshots().iterator(); i.hasNext();) {
        long id = ((Snapshot) i.next()).snapshotId();
        if (base.snapshot(id) == null && now.snapshot(id) != null) {
          return true;
        }
      }
      return false;
    }

    public TableMetadata current() {
      return this.inner.current();
    }

    public TableMetadata refresh() {
      return this.inner.refresh();
    }

    public FileIO io() {
      return this.inner.io();
    }

    public TableOperations temp(TableMetadata metadata) {
      return this.inner.temp(metadata);
    }
%(passed_on)s  }
%(written)s}
"""


class CurrentState(NamedTuple):
    """What a table is now, on the branch that is written (`kuvasz.lake.jvm.refs.branch`)."""

    snapshot_id: int | None
    parent_id: int | None
    schema_id: int
    sequence: int  #: of the current snapshot; 0 if there is none
    format_version: int  #: of Iceberg


class JvmCalls:
    """Made by `install`. What goes wrong is a `Py4JError`.

    Args:
        compiled: The Java object.
        direct: An executor that does things at once.
    """

    def __init__(self, compiled: Any, direct: Any) -> None:  # noqa: ANN401 (Java objects)
        self._compiled = compiled
        self._direct = direct

    def look(self, handle: Any) -> CurrentState:  # noqa: ANN401
        """Look at the catalog again."""
        return _state(self._compiled.look(handle))

    def head(self, handle: Any) -> Any:  # noqa: ANN401
        """Return Iceberg's newest snapshot of the branch that is written, as of the last look; None if it is empty.

        As long as there is no such branch it is that of the table's own, upon which Iceberg begins it.
        """
        return self._compiled.head(handle)

    def properties(self, handle: Any, seen: str) -> tuple[str, Mapping[str, str]] | None:  # noqa: ANN401
        """Return where the table's metadata is, empty if nobody knows, and the properties in it.

        None where it is still what was seen: of a thousand sources the properties are half a megabyte.

        Args:
            handle: Iceberg's table.
            seen: Where the metadata was that was read last; empty for none.
        """
        found = self._compiled.properties(handle, seen)
        if found is None:
            return None
        location, _, text = bytes(found).partition(b"\n")
        # Each source has names of its own, and they are the same in all of its tables.
        return location.decode(), {sys.intern(name): value for name, value in json.loads(text).items()}

    def property_of(self, handle: Any, name: str) -> str | None:  # noqa: ANN401
        """Return one table property."""
        found: str | None = self._compiled.property(handle, name)
        return found

    def files(self, handle: Any, bounded: str) -> Iterator[tuple[int, dict[str, Any], list[dict[str, Any]]]]:  # noqa: ANN401
        """Yield the files of the current snapshot: sequence, data file, delete files (as ContentFileParser's JSON).

        Args:
            handle: Iceberg's table.
            bounded: The column whose bounds are wanted, if there is one of that name.
        """
        tasks = self._compiled.scan(handle, bounded)
        try:
            iterator = tasks.iterator()
            while text := self._compiled.some(handle, iterator, _FILES):
                yield from json.loads(text)
        finally:
            tasks.close()

    def begin(self, handle: Any) -> Any:  # noqa: ANN401
        """Return a transaction of Iceberg's that its caller fills and commits; see `Once` above."""
        return self._compiled.begin(handle)

    def commit(self, handle: Any, commit: TableCommit, *, is_local: bool) -> CurrentState:  # noqa: ANN401
        """Make a commit, of any kind.

        Args:
            handle: Iceberg's table.
            commit: What changes.
            is_local: Whether manifests are read and written in the calling thread.
        """
        direct = self._direct if is_local else None
        return _state(self._compiled.commit(handle, _json(commit), direct))

    def fill(self, handle: Any, transaction: Any, commit: TableCommit, *, is_local: bool) -> None:  # noqa: ANN401
        """Put a commit, of any kind, into a transaction of Iceberg's, which its owner ends."""
        self._compiled.fill(handle, transaction, _json(commit), self._direct if is_local else None)


def install(jvm: Any, direct: Any) -> JvmCalls | None:  # noqa: ANN401
    """Compile the class; None if that cannot be, and all is done call by call."""
    try:
        # Iceberg has Jackson under a name of its own.
        mapper = str(jvm.org.apache.iceberg.util.JsonUtil.mapper().getClass().getPackageName())
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        name = f"JvmCalls{next(_NUMBERS)}"
        node, branch = f"{mapper}.JsonNode", BRANCH_PROPERTY
        parts = {"name": name, "node": node, "branch": branch, "passed_on": PASSED_ON, "written": WRITTEN}
        compiler.cook(_SOURCE % parts)
        return JvmCalls(compiler.getClassLoader().loadClass(f"kuvasz.{name}").newInstance(), direct)
    except Py4JError:
        _log.tell(Event.INSIDE_FAILED)
        return None


def _json(commit: TableCommit) -> str:
    told: dict[str, Any] = {
        "properties": dict(commit.properties),
        "removed_properties": list(commit.removed_properties),
    }
    if commit.is_empty and not commit.is_swap:
        return json.dumps(told)
    told["summary"] = dict(commit.summary)
    if commit.snapshot_id is not None:
        told["snapshot_id"] = commit.snapshot_id
    if commit.is_swap:
        told["is_swap"] = True
        if commit.sequence is not None:
            told["sequence"] = commit.sequence
    elif (existing := commit.existing()) is not None:
        told["existing"] = existing
    files = {
        "data_files": commit.data_files, "added_deletes": commit.added_deletes,
        "removed_deletes": commit.removed_deletes, "removed_files": commit.removed_files,
    }  # fmt: skip
    # The files are JSON already.
    rest = ", ".join(f'"{name}": [{", ".join(texts)}]' for name, texts in files.items())
    return f"{json.dumps(told)[:-1]}, {rest}}}"


def _state(text: str) -> CurrentState:
    snapshot_id, parent_id, schema_id, sequence, format_version = text.split()
    return CurrentState(_number(snapshot_id), _number(parent_id), int(schema_id), int(sequence), int(format_version))


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


__all__ = ["CurrentState", "JvmCalls", "install"]
