"""Commits of several tables that become visible at once: all of them are written, and then shown in one step.

Iceberg's own commit of one table writes its manifests and a metadata file, and then has the catalog exchange the
place of the metadata, if that is still what the commit stands upon. Here the first half is Iceberg's as well, table
by table: a transaction upon `Staged`, which keeps what it is to commit. The second half is the catalog's: a JDBC
catalog exchanges the rows of all tables (`JdbcSwap`), a REST catalog has a request for it (`RestTransaction`). The
classes are compiled by Janino; see `kuvasz.lake.jvm.jvm_calls`.

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
from kuvasz.lake.format.table_identity import BRANCH_PROPERTY
from kuvasz.lake.jvm.joint import jdbc_swap, rest_transaction, staged
from kuvasz.lake.jvm.jvm_errors import translated

_log = EventLog(__name__)

#: py4j remembers methods by the name of the class, so each one that is compiled needs its own.
_NUMBERS = itertools.count(1)

_SOURCE = (
    """
package %(package)s;

import java.lang.reflect.Field;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
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
import org.apache.iceberg.MetadataUpdate;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.Transactions;
import org.apache.iceberg.UpdateRequirement;
import org.apache.iceberg.UpdateRequirements;
import org.apache.iceberg.catalog.TableCommit;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.BadRequestException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.exceptions.ForbiddenException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NotAuthorizedException;
import org.apache.iceberg.exceptions.RESTException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.rest.RESTCatalog;

interface Exchange {
  boolean isFile();

  List swap(List names, List staged) throws Exception;
}

public class Joint {
  private Exchange exchange;

  public String open(Object catalog, String name) throws Exception {
    if (catalog instanceof RESTCatalog) {
      RestTransaction made = new RestTransaction((RESTCatalog) catalog);
      this.exchange = made;
      return made.why();
    }
    try {
      this.exchange = new JdbcSwap(catalog, name);
      return null;
    } catch (NoSuchFieldException error) {
      return catalog.getClass().getName() + " has no field " + error.getMessage();
    }
  }

  public Staged stage(Table table) {
    return new Staged(table, this.exchange.isFile());
  }

  public List swap(List names, List staged) throws Exception {
    return this.exchange.swap(names, staged);
  }
}
"""
    + staged.JAVA
    + jdbc_swap.JAVA
    + rest_transaction.JAVA
)


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
        made = self._compiled.stage(java)
        try:
            transaction = made.begin()
            fill(transaction)
            transaction.commitTransaction()
            made.write()
            arrive()
        except Exception:
            self._drop(made)
            raise
        return StagedCommit(name=name, java=made)

    def swap(self, commits: Sequence[StagedCommit]) -> list[str]:
        """Show all of them at once.

        Returns:
            The tables that were changed meanwhile, because of which nothing was shown; none if all of it is.

        Raises:
            OutcomeUnknown: It was sent, and its answer lost.
            LakeError: The catalog failed; nothing was shown.
        """
        # In one order, or two of them would wait for each other in the catalog's database.
        ordered = sorted(commits, key=lambda one: one.name)
        names, javas = self._jvm.java.util.ArrayList(), self._jvm.java.util.ArrayList()
        for one in ordered:
            names.add(self._parse_name(one.name))
            javas.add(one.java)
        with translated(f"tables {', '.join(one.name for one in ordered)}"):
            return [str(name) for name in self._compiled.swap(names, javas)]

    def tidy(self, commit: StagedCommit) -> None:
        """Remove the metadata that a commit which is shown took out of the table's log, as Iceberg does."""
        with contextlib.suppress(Py4JError):  # as Iceberg: what is left harms nobody
            commit.java.tidy()

    def drop(self, commit: StagedCommit) -> None:
        """Remove what was written of a commit that is not shown, and of which that is known for sure."""
        self._drop(commit.java)

    def _drop(self, java: Any) -> None:  # noqa: ANN401
        with contextlib.suppress(Py4JError):  # what is left harms nobody
            java.drop()


def install(jvm: Any, catalog: Any, parse_name: Callable[[str], Any]) -> JointCommit:  # noqa: ANN401
    """Compile the classes, and find out how the catalog changes several tables.

    Raises:
        LakeError: It changes one at a time.
    """
    name = f"kuvasz.joint{next(_NUMBERS)}"
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE % {"package": name, "branch": BRANCH_PROPERTY})
        compiled = compiler.getClassLoader().loadClass(f"{name}.Joint").newInstance()
    except Py4JError as error:
        _log.tell(Event.INSIDE_FAILED)
        raise _refused(str(error).splitlines()[0]) from error
    why = compiled.open(catalog, str(catalog.name()))
    if why is not None:
        raise _refused(str(why).splitlines()[0])
    return JointCommit(jvm, compiled, parse_name)


def _refused(why: str) -> LakeError:
    return LakeError(
        f"the catalog cannot change several tables in one commit: {why}",
        hint="leave `consistency` at table, or use a catalog that does: jdbc, or rest with commits of several tables",
    )


__all__ = ["JointCommit", "StagedCommit", "install"]
