"""Iceberg's catalog in Spark's JVM, reached through py4j.

This room is the only one that names Iceberg's classes.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kuvasz.errors import KuvaszError, LakeError, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.store_access import StoreAccess
from kuvasz.lake.format import layout
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import Field, render
from kuvasz.lake.jvm import localfs
from kuvasz.lake.jvm.credentials.jdbc_pool import JdbcPool
from kuvasz.lake.jvm.credentials.live_credentials import LiveCredentials
from kuvasz.lake.jvm.credentials.rest_session import RestSession
from kuvasz.lake.jvm.iceberg_classes import IcebergClasses
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.jvm.joint import joint_commit
from kuvasz.lake.jvm.joint.joint_commit import JointCommit
from kuvasz.lake.jvm.jvm_errors import class_of, lost, translated
from kuvasz.lake.jvm.vended_table import VendedTable
from kuvasz.model import LakeType, ValueType

_log = EventLog(__name__)


class Catalog:
    """The catalog that holds the lake's tables.

    Args:
        session: The running Spark.
        name: The catalog's name there.
        access: The properties of the FileIO; told what the catalog lends for each table.
    """

    def __init__(self, session: SparkSession, name: str, access: Mapping[str, str] | None = None) -> None:
        self._access = access
        self._session = session
        self._name = name
        self._joint: JointCommit | None = None
        self._joint_lock = threading.Lock()
        jvm: Any = session._jvm
        self.jvm = jvm
        self._hadoop = session._jsparkSession.sparkContext().hadoopConfiguration()
        self._gateway: Any = session.sparkContext._gateway
        with translated(f"catalog {name}"):
            localfs.install(jvm, self._hadoop)
            self.classes = IcebergClasses(session)
            self._parse_name = jvm.org.apache.iceberg.catalog.TableIdentifier.parse
            # A thread without an active session sees Spark's start-up settings alone, not this session's.
            self.jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
            util = self.jvm.org.apache.iceberg.spark.Spark3Util
            self._handle = util.loadIcebergCatalog(session._jsparkSession, name)
            is_rest = str(self._handle.getClass().getSimpleName()) == "RESTCatalog"
        login: RestSession | JdbcPool = (RestSession if is_rest else JdbcPool)(jvm, self._handle)
        self._credentials = LiveCredentials(jvm, self._handle, login, access or {})

    def joint(self) -> JointCommit:
        """Return what shows commits of several tables at once, always the same: it takes what it has staged alone.

        Raises:
            LakeError: The catalog changes one table at a time.
        """
        with self._joint_lock, translated(f"catalog {self._name}"):
            if self._joint is None:
                self._joint = joint_commit.install(self.jvm, self._handle, self._parse_name)
            return self._joint

    def renew(self, properties: Mapping[str, str]) -> None:
        """Have a JDBC or REST catalog be reached by other properties from now on, for all tables.

        Args:
            properties: Its credentials are among them, or there are none.

        Raises:
            LakeError: Nobody is let in by them, and those before count; or it is another catalog than was expected.
        """
        self._credentials.renew(properties)
        if isinstance(self._access, StoreAccess):
            self._access.follow(properties)

    def known_files(self, name: str) -> set[str]:
        """Return the names, without folders, of all data and delete files that any snapshot of a table knows."""
        quoted = ".".join(f"`{part}`" for part in (self._name, *name.split("."), "all_files"))
        try:
            found = self._session.sql(f"SELECT DISTINCT file_path FROM {quoted}").collect()
        except (Py4JError, PySparkException) as error:
            lines = str(error).splitlines() or ["?"]
            raise LakeError(
                f"{place_of(table=name)}: its files cannot be listed: {lines[0]}", hint="it is tried again"
            ) from error
        return {str(row[0]).rpartition("/")[2] for row in found}

    def ensure_namespace(self, namespace: str) -> None:
        """Create a namespace if it is missing."""
        with translated(f"namespace {namespace}"):
            handle = self._namespace(namespace)
            if not self._handle.namespaceExists(handle):
                self._handle.createNamespace(handle)

    def namespaces(self) -> list[str]:
        """Return the names of all namespaces, those within others behind them."""
        with translated(f"catalog {self._name}"):
            found = list(self._handle.listNamespaces())
            for handle in found:
                found.extend(self._handle.listNamespaces(handle))
            return [".".join(map(str, handle.levels())) for handle in found]

    def tables(self, namespace: str) -> list[str]:
        """Return the names of the tables in a namespace; none if there is no such namespace."""
        with translated(f"namespace {namespace}"):
            handle = self._namespace(namespace)
            if not self._handle.namespaceExists(handle):
                return []
            return [f"{namespace}.{found.name()}" for found in self._handle.listTables(handle)]

    def load(self, name: str) -> IcebergTable | None:
        """Return a table by its name, `namespace.table`; None if there is none.

        Raises:
            TableStuck: The catalog has it, and its metadata file is gone.
            LakeError: Catalog or store do not answer.
        """
        with translated(place_of(table=name)):
            try:
                return self._table(self._load(name), name)
            except Py4JJavaError as error:
                kind = class_of(error)
                if kind.endswith("NoSuchTableException"):
                    return None
                if kind.endswith(".NotFoundException"):  # the store answers: others have theirs
                    raise lost(name, error) from error
                raise

    def create(
        self, name: str, fields: Sequence[Field], key: Iterable[str], layout_: Layout, properties: Mapping[str, str],
        location: str | None = None,
    ) -> IcebergTable:  # fmt: skip
        """Create a table.

        Args:
            name: `namespace.table`.
            fields: Its columns.
            key: Names of those that identify a row.
            layout_: Its partitions and its order within files.
            properties: Its properties.
            location: Where its files lie; None: where the catalog puts them.
        """
        with translated(place_of(table=name)):
            iceberg = self.jvm.org.apache.iceberg
            schema = iceberg.SchemaParser.fromJson(render(fields, key))
            values = self.jvm.java.util.HashMap()
            for key, value in properties.items():
                values.put(key, value)
            builder = self._handle.buildTable(self._parse_name(name), schema).withProperties(values)
            if layout_.partition:
                spec = iceberg.PartitionSpecParser.fromJson(schema, layout.render_spec(layout_, fields))
                builder.withPartitionSpec(spec)
            if location is not None:
                builder.withLocation(location)
            if layout_.order:
                order = iceberg.SortOrderParser.fromJson(schema, layout.render_order(layout_, fields))
                builder.withSortOrder(order)
            return self._table(builder.create(), name)

    def _load(self, name: str) -> Any:  # noqa: ANN401
        self._credentials.settle()
        return self._handle.loadTable(self._parse_name(name))

    def _table(self, java: Any, name: str) -> IcebergTable:  # noqa: ANN401
        vended: VendedTable | LiveCredentials = self._credentials
        if isinstance(self._access, StoreAccess):
            vended = VendedTable(self.jvm, java, name, lambda: self._load(name), self._access, self._credentials)
        return IcebergTable(self.classes, java, name, vended)

    def drop(self, name: str) -> None:
        """Drop a table and its files."""
        with translated(place_of(table=name)):
            self._handle.dropTable(self._parse_name(name), True)  # noqa: FBT003 (Java)

    def rehearse(self, folder: Path, commits: int = 4) -> None:
        """Make a few commits to a table of no catalog, so that the JVM has loaded what the first real one needs.

        Cold, a commit takes ten times as long as the tenth (measured).
        """
        shutil.rmtree(folder, ignore_errors=True)
        try:
            field = Field(field_id=1, name="id", type=ValueType(kind=LakeType.LONG), required=True)
            schema = self.jvm.org.apache.iceberg.SchemaParser.fromJson(render([field], ()))
            spec = self.jvm.org.apache.iceberg.PartitionSpec.unpartitioned()
            properties = self.jvm.java.util.HashMap()
            properties.put("format-version", "3")
            location = f"file://{folder.absolute()}"
            tables = self.jvm.org.apache.iceberg.hadoop.HadoopTables(self._hadoop)
            table = IcebergTable(self.classes, tables.create(schema, spec, properties, location), "rehearsal")
            for number in range(commits):
                table.commit(_rehearsal(location, number, table.snapshots.current_id))
            list(table.live_files())
        except (KuvaszError, Py4JError):
            _log.tell(Event.REHEARSAL_FAILED)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _namespace(self, name: str) -> Any:  # noqa: ANN401
        return self.jvm.org.apache.iceberg.catalog.Namespace.of(self._strings(name.split(".")))

    def _strings(self, values: Sequence[str]) -> Any:  # noqa: ANN401
        array = self._gateway.new_array(self.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array


def _rehearsal(location: str, number: int, snapshot_id: int | None) -> TableCommit:
    """Return a commit of files that do not exist; nobody reads the table."""
    path = f"{location}/data/{number}.parquet"
    data = {"spec-id": 0, "content": "data", "file-path": path, "file-format": "parquet", "partition": [],
            "file-size-in-bytes": 1, "record-count": 2}  # fmt: skip
    vector = {"spec-id": 0, "content": "position-deletes", "file-path": f"{path}.puffin", "file-format": "puffin",
              "partition": [], "file-size-in-bytes": 9, "record-count": 1, "referenced-data-file": path,
              "content-offset": 4, "content-size-in-bytes": 4}  # fmt: skip
    return TableCommit(
        snapshot_id=snapshot_id,
        properties={"kuvasz.commit": str(number)},
        summary={},
        data_files=[json.dumps(data)],
        added_deletes=[json.dumps(vector)],
    )


__all__ = ["Catalog"]
