"""Commits of several tables that become visible at once: all of them are written, and then shown in one step.

Iceberg's own commit of one table writes its manifests and a metadata file, and then has the catalog exchange the
place of the metadata, if that is still what the commit stands upon. Here the first half is Iceberg's as well, table
by table: a transaction upon `Staged`, which keeps what it is to commit. The second half is one SQL transaction over
the rows of all tables in a JDBC catalog (`Swap`): it exchanges every place, or none. It uses the catalog's own
connections, for SQLite has one writer; one of which nobody knows whether its transaction has ended is closed, because
to make it commit by itself again would commit what was left. The classes are compiled by Janino; see
`kuvasz.lake.jvm.jvm_calls`.

Whoever dies between the halves leaves files of metadata that nothing names, and no table that has changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from py4j.protocol import Py4JError

from kuvasz.errors import LakeError
from kuvasz.events import Event, EventLog
from kuvasz.lake.jvm.jvm_errors import translated

_log = EventLog(__name__)

#: py4j remembers methods by the name of the class, so each one that is compiled needs its own.
_NUMBERS = itertools.count(1)

_PACKAGE = "kuvasz.joint"

_SOURCE = """
package kuvasz.joint%(number)s;

import java.lang.reflect.Field;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.ClientPool;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.Transactions;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

public class Staged implements TableOperations {
  private final TableOperations inner;
  private final Table table;
  private boolean isFresh;
  TableMetadata base;
  TableMetadata made;
  String place;

  public Staged(Table table) {
    this.table = table;
    this.inner = ((HasTableOperations) table).operations();
  }

  public Transaction begin() {
    return Transactions.newTransaction(this.table.name(), this);
  }

  public TableMetadata current() {
    return this.made == null ? this.inner.current() : this.made;
  }

  public TableMetadata refresh() {
    if (this.made == null && !this.isFresh) {
      this.isFresh = true;
      return this.inner.refresh();
    }
    return this.current();
  }

  public void commit(TableMetadata base, TableMetadata metadata) {
    this.base = base;
    this.made = metadata;
  }

  public FileIO io() {
    return this.inner.io();
  }

  public EncryptionManager encryption() {
    return this.inner.encryption();
  }

  public String metadataFileLocation(String name) {
    return this.inner.metadataFileLocation(name);
  }

  public LocationProvider locationProvider() {
    return this.inner.locationProvider();
  }

  public TableOperations temp(TableMetadata metadata) {
    return this.inner.temp(metadata);
  }

  public long newSnapshotId() {
    return this.inner.newSnapshotId();
  }

  public boolean requireStrictCleanup() {
    return this.inner.requireStrictCleanup();
  }

  public void write() {
    String codec = this.made.property("write.metadata.compression-codec", "none");
    String before = this.base.metadataFileLocation();
    String name = before.substring(before.lastIndexOf('/') + 1);
    int dash = name.indexOf('-');
    int version = 0;
    try {
      version = Integer.parseInt(name.substring(0, Math.max(dash, 0))) + 1;
    } catch (NumberFormatException error) {
      version = 0;
    }
    String number = String.valueOf(version);
    while (number.length() < 5) {
      number = "0" + number;
    }
    String file = number + "-" + UUID.randomUUID() + TableMetadataParser.getFileExtension(codec);
    this.place = this.inner.metadataFileLocation(file);
    TableMetadataParser.overwrite(this.made, this.io().newOutputFile(this.place));
  }

  public void tidy() {
    if (this.made != this.base) {
      CatalogUtil.deleteRemovedMetadataFiles(this.io(), this.base, this.made);
    }
  }

  public void drop() {
    if (this.made == null || this.made == this.base) {
      return;
    }
    Set before = new HashSet();
    for (Iterator i = this.base.snapshots().iterator(); i.hasNext();) {
      before.add(Long.valueOf(((Snapshot) i.next()).snapshotId()));
    }
    for (Iterator i = this.made.snapshots().iterator(); i.hasNext();) {
      Snapshot snapshot = (Snapshot) i.next();
      if (!before.contains(Long.valueOf(snapshot.snapshotId()))) {
        for (Iterator j = snapshot.allManifests(this.io()).iterator(); j.hasNext();) {
          ManifestFile manifest = (ManifestFile) j.next();
          if (manifest.snapshotId() != null && manifest.snapshotId().longValue() == snapshot.snapshotId()) {
            this.io().deleteFile(manifest.path());
          }
        }
        this.io().deleteFile(snapshot.manifestListLocation());
      }
    }
    if (this.place != null) {
      this.io().deleteFile(this.place);
    }
  }
}

class Swap implements ClientPool.Action {
  private static final String SQL =
      "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
      + " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?";
  private final String catalog;
  private final List names;
  private final List staged;

  Swap(String catalog, List names, List staged) {
    this.catalog = catalog;
    this.names = names;
    this.staged = staged;
  }

  public Object run(Object client) throws Exception {
    Connection connection = (Connection) client;
    connection.setAutoCommit(false);
    boolean isSent = false;
    boolean isEnded = false;
    try {
      List moved = this.exchange(connection);
      if (moved.isEmpty()) {
        isSent = true;
        connection.commit();
      } else {
        connection.rollback();
      }
      isEnded = true;
      return moved;
    } catch (SQLException error) {
      try {
        connection.rollback();
        isEnded = true;
      } catch (SQLException other) {
        error.addSuppressed(other);
      }
      if (isSent) {
        throw new CommitStateUnknownException(error);
      }
      throw error;
    } finally {
      if (isEnded) {
        connection.setAutoCommit(true);
      } else {
        connection.close();
      }
    }
  }

  private List exchange(Connection connection) throws SQLException {
    List moved = new ArrayList();
    PreparedStatement update = connection.prepareStatement(SQL);
    try {
      for (int i = 0; i < this.staged.size(); i++) {
        Staged one = (Staged) this.staged.get(i);
        TableIdentifier name = (TableIdentifier) this.names.get(i);
        update.setString(1, one.place);
        update.setString(2, one.base.metadataFileLocation());
        update.setString(3, this.catalog);
        update.setString(4, name.namespace().toString());
        update.setString(5, name.name());
        update.setString(6, one.base.metadataFileLocation());
        if (update.executeUpdate() != 1) {
          moved.add(name.toString());
        }
      }
    } finally {
      update.close();
    }
    return moved;
  }
}

public class Joint {
  private ClientPool pool;
  private String catalog;

  public void open(Object catalog, String name) throws Exception {
    Field field = catalog.getClass().getDeclaredField("connections");
    field.setAccessible(true);
    this.pool = (ClientPool) field.get(catalog);
    this.catalog = name;
  }

  public Staged stage(Table table) {
    return new Staged(table);
  }

  public List swap(List names, List staged) throws Exception {
    return (List) this.pool.run(new Swap(this.catalog, names, staged));
  }
}
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """A commit of one table that is written, and that nothing shows yet."""

    name: str  #: of the table
    java: Any


class JointCommit:
    """Made by `install`. Safe to use from several threads.

    Args:
        jvm: Spark's.
        compiled: The Java object.
        parse_name: Makes Iceberg's identifier of a table's name.
    """

    def __init__(self, jvm: Any, compiled: Any, parse_name: Callable[[str], Any]) -> None:  # noqa: ANN401 (Java objects)
        self._jvm = jvm
        self._compiled = compiled
        self._parse_name = parse_name

    def stage(
        self, name: str, java: Any, fill: Callable[[Any], None], arrive: Callable[[], None]  # noqa: ANN401
    ) -> StagedCommit:  # fmt: skip
        """Write what a transaction is filled with, but for what shows it; called by `IcebergTable.stage`.

        Args:
            name: `namespace.table`.
            java: Iceberg's table.
            fill: Puts the commit into the transaction.
            arrive: Waits until the store has all that was written.
        """
        staged = self._compiled.stage(java)
        try:
            transaction = staged.begin()
            fill(transaction)
            transaction.commitTransaction()
            staged.write()
            arrive()
        except Exception:
            self._drop(staged)
            raise
        return StagedCommit(name=name, java=staged)

    def swap(self, staged: Sequence[StagedCommit]) -> list[str]:
        """Show all of them at once.

        Returns:
            The tables that were changed meanwhile, because of which nothing was shown; none if all of it is.

        Raises:
            OutcomeUnknown: It was sent, and its answer lost.
            LakeError: The catalog failed; nothing was shown.
        """
        # In one order, or two of them would wait for each other in the catalog's database.
        ordered = sorted(staged, key=lambda one: one.name)
        names, javas = self._jvm.java.util.ArrayList(), self._jvm.java.util.ArrayList()
        for one in ordered:
            names.add(self._parse_name(one.name))
            javas.add(one.java)
        with translated(f"tables {', '.join(one.name for one in ordered)}"):
            return [str(name) for name in self._compiled.swap(names, javas)]

    def tidy(self, staged: StagedCommit) -> None:
        """Remove the metadata that a commit which is shown took out of the table's log, as Iceberg does."""
        with contextlib.suppress(Py4JError):  # as Iceberg: what is left harms nobody
            staged.java.tidy()

    def drop(self, staged: StagedCommit) -> None:
        """Remove what was written of a commit that is not shown, and of which that is known for sure."""
        self._drop(staged.java)

    def _drop(self, java: Any) -> None:  # noqa: ANN401
        with contextlib.suppress(Py4JError):  # what is left harms nobody
            java.drop()


def install(jvm: Any, catalog: Any, parse_name: Callable[[str], Any]) -> JointCommit:  # noqa: ANN401
    """Compile the classes, and reach the connections of a JDBC catalog.

    Raises:
        LakeError: It is no JDBC catalog, or one that keeps its connections elsewhere.
    """
    try:
        package = f"{_PACKAGE}{next(_NUMBERS)}"
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE % {"number": package.removeprefix(_PACKAGE)})
        compiled = compiler.getClassLoader().loadClass(f"{package}.Joint").newInstance()
        compiled.open(catalog, str(catalog.name()))
        return JointCommit(jvm, compiled, parse_name)
    except Py4JError as error:
        _log.tell(Event.INSIDE_FAILED)
        message = f"the catalog cannot change several tables in one commit: {str(error).splitlines()[0]}"
        raise LakeError(message, hint="leave `consistency` at table, or use a jdbc catalog") from error


__all__ = ["JointCommit", "StagedCommit", "install"]
