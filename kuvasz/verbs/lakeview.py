"""The lake as a reader sees it, without Spark and without changing anything: for `kuvasz plan` and `kuvasz check`.

The catalog is opened by PyIceberg, from the same options that Spark gets. The Iceberg spec knows the catalogs'
properties by the same names in Java and Python, except those of a jdbc catalog.
"""

from __future__ import annotations

import dataclasses
import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from kuvasz.config.model import CatalogType, LakeConfig
from kuvasz.errors import LakeError
from kuvasz.evolve import column_notes
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.definition.lineage import LakeSnapshot, Lineage, lineage_of
from kuvasz.lake.format import rule, source_positions, table_identity
from kuvasz.lake.iceberg import conditions
from kuvasz.model import SourcePosition, TableType
from kuvasz.state.store import state_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from kuvasz.config.model import Config

_HINT = "check `lake.uri`, `lake.properties` and the permissions"
_JDBC_POSTGRES = "jdbc:postgresql://"

#: SQLSTATE of a table that is not there (manual, appendix A).
_UNDEFINED_TABLE = "42P01"

#: From PostgreSQL 15 on nobody but its owner may make tables in `public` (release notes).
_MAY_CREATE = (
    "SELECT quote_ident(current_user), quote_ident(current_schema()),"
    " has_schema_privilege(current_schema(), 'CREATE')"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeTableView:
    """A table of the lake."""

    columns: Mapping[str, str]  #: name -> type, as Iceberg writes it
    known: Mapping[str, SourceColumns] = dataclasses.field(default_factory=dict)  #: source -> its columns then
    positions: Mapping[str, SourcePosition]  #: by source
    #: source -> by which rule of the map its rows were made, see `kuvasz.lake.format.rule`
    rules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    oids: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: source -> OID of the table whose rows it has
    made: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: properties, see `table_identity`
    is_empty: bool = False  #: it has no snapshot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """A table of the lake with its snapshots."""

    lineage: Lineage
    type: TableType  #: as it was made
    metadata_location: str  #: the file that says all of this


class LakeView:
    """The tables of one catalog.

    Args:
        config: The whole configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config.lake
        self._catalog: Catalog | None = None
        file = config.lake.sqlite_file
        # SQLite would make the file by being asked for it.
        if file is None or file.is_file():
            self._catalog = _open(config.lake)

    def table(self, name: str) -> LakeTableView | None:
        """Return a table, None if there is none.

        Raises:
            LakeError: The catalog does not answer, or what kuvasz noted in the table is damaged.
        """
        found = self.load(name)
        return None if found is None else seen(found, name)

    def lineage(self, name: str) -> LineageView | None:
        """Return a table with its snapshots, None if there is none.

        Raises:
            LakeError: The catalog does not answer, or what kuvasz noted in the table is damaged.
        """
        found = self.load(name)
        if found is None:
            return None
        positions, kind = source_positions.parse(found.properties, name), table_identity.made_as(found.properties)
        snapshots = snapshots_of(found, name)
        if kind is TableType.HISTORY:  # what it was before has no versions
            snapshots.pop(table_identity.last_of_another_type(found.properties) or 0, None)
        return LineageView(
            lineage=lineage_of(snapshots, head_of(found), positions),
            type=kind,
            metadata_location=found.metadata_location,
        )

    def load(self, name: str) -> Table | None:
        """Return a table as PyIceberg has it, None if there is none.

        Raises:
            LakeError: The catalog does not answer.
        """
        if self._catalog is None:
            return None
        try:
            return self._catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:
            if _is_to_be_made(error):
                return None
            raise LakeError(f"the catalog cannot be read: {_told(error)}", hint=_HINT) from error


def head_of(found: Table) -> int | None:
    """Return the newest snapshot of the branch that is written; of main, as long as there is no such branch."""
    branch = found.metadata.refs.get(found.properties.get(table_identity.BRANCH_PROPERTY, table_identity.MAIN))
    return found.metadata.current_snapshot_id if branch is None else branch.snapshot_id


def snapshots_of(found: Table, name: str) -> dict[int, LakeSnapshot]:
    """Return the snapshots of a table, by their ids.

    Raises:
        LakeError: What kuvasz noted in one is damaged.
    """
    told = {
        one.snapshot_id: one.summary.additional_properties if one.summary else {} for one in found.metadata.snapshots
    }
    return {
        one.snapshot_id: LakeSnapshot(
            id=one.snapshot_id, parent_id=one.parent_snapshot_id, at_ms=one.timestamp_ms,
            positions=source_positions.parse(told[one.snapshot_id], name),
            newest_us=source_positions.parse_newest(told[one.snapshot_id]),
        )
        for one in found.metadata.snapshots
    }  # fmt: skip


def seen(found: Table, name: str) -> LakeTableView:
    """Return what kuvasz knows of a table.

    Raises:
        LakeError: What it noted in the table is damaged.
    """
    known = column_notes.parse(found.properties, name)
    return LakeTableView(
        columns={field.name: str(field.field_type) for field in found.schema().fields},
        known=known,
        positions=source_positions.parse(found.properties, name),
        rules={
            key.removeprefix(rule.PREFIX): value
            for key, value in found.properties.items()
            if key.startswith(rule.PREFIX)
        },
        oids={source: one.oid for source, one in known.items()},
        made=found.properties,
        is_empty=head_of(found) is None,
    )


def positions_in(view: LakeTableView | None) -> Mapping[str, SourcePosition]:
    """Return how far each source is in a table; nothing if there is none."""
    return {} if view is None else view.positions


def without_due(config: Config, tables: Mapping[str, LakeTableView | None]) -> dict[str, LakeTableView | None]:
    """Return tables as the next start takes them: without the positions of what is to be copied again.

    Raises:
        StateError: The state store cannot be read.
    """
    notes = state_of(config).notes.all()
    found = dict(tables)
    for (target, name), note in notes.items():
        view = found.get(target)
        if view is not None and note.is_resync_due and note.paused_at is None:
            kept = {source: position for source, position in view.positions.items() if source != name}
            found[target] = dataclasses.replace(view, positions=kept)
    return found


def prove_catalog(config: Config) -> str:
    """Ask the catalog for its namespaces and return where it is.

    Raises:
        LakeError: It does not answer, or its file cannot be made.
    """
    lake = config.lake
    if lake.sqlite_file is not None and not lake.sqlite_file.exists():
        prove_folder(lake.sqlite_file.parent, "the catalog's file cannot be made")
        return "to be made"
    catalog = _open(lake)
    try:
        catalog.list_namespaces()
    except Exception as error:
        if _is_to_be_made(error):
            _prove_schema(catalog)
            return "to be made"
        raise LakeError(f"the catalog cannot be read: {_told(error)}", hint=_HINT) from error
    return "an answer"


def _is_to_be_made(error: Exception) -> bool:
    """Return whether a jdbc catalog has no tables yet: a start makes them."""
    if not isinstance(error, DBAPIError):
        return False
    return getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE or "no such table" in str(error.orig)


def _told(error: Exception) -> str:
    """Return what a catalog says, without SQLAlchemy's statement and links."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(cause).splitlines() or [type(cause).__name__])[0]


def _prove_schema(catalog: Catalog) -> None:
    """Find out whether a catalog's tables may be made where its connections make them.

    Raises:
        LakeError: They may not.
    """
    if not isinstance(catalog, SqlCatalog) or catalog.engine.dialect.name != "postgresql":
        return
    with catalog.engine.connect() as connection:
        user, schema, may_create = connection.execute(text(_MAY_CREATE)).one()
    if not may_create:
        raise LakeError(
            f"the catalog cannot be made: {user} has no CREATE on schema {schema}",
            hint=f"at the catalog's database: GRANT CREATE ON SCHEMA {schema} TO {user};",
        )


def prove_warehouse(config: Config) -> str:
    """Write a small file into the warehouse and remove it; a folder that is not there yet is only looked at.

    Raises:
        LakeError: It cannot be written.
    """
    location = config.lake.warehouse_location
    if location.startswith("file://") and not (folder := Path(location.removeprefix("file://"))).is_dir():
        prove_folder(folder.parent, f"the warehouse {folder} cannot be made")
        return "to be made"
    conditions.prove_warehouse(config)
    if config.lake.vends_credentials and config.spark.is_local:
        return "its tables' credentials come from the catalog"
    return "written and removed"


def prove_folder(folder: Path, what: str) -> None:
    """Make sure that a folder can be made, without making it.

    Raises:
        LakeError: It cannot.
    """
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LakeError(f"{what}: {folder} is not writable", hint="choose another place, or let kuvasz write there")


def _open(lake: LakeConfig) -> Catalog:
    try:
        return load_catalog(lake.name, **catalog_properties(lake))
    except Exception as error:
        raise LakeError(f"the catalog cannot be opened: {_told(error)}", hint=_HINT) from error


def catalog_properties(lake: LakeConfig) -> dict[str, str]:
    """Return the options of a catalog as PyIceberg takes them."""
    given = lake.properties
    properties = {"type": str(lake.type), "uri": lake.catalog_uri, "warehouse": lake.warehouse_location, **given}
    if lake.type is CatalogType.JDBC:
        # To open a catalog must not make its tables.
        properties |= {"type": "sql", "uri": _sql_uri(lake, given), "init_catalog_tables": "false"}
    return properties


def _sql_uri(lake: LakeConfig, properties: Mapping[str, str]) -> str:
    if lake.sqlite_file is not None:
        return f"sqlite:///{lake.sqlite_file}"
    if not lake.uri.startswith(_JDBC_POSTGRES):
        raise LakeError(f"lake.uri: {lake.uri.partition('?')[0]} is no catalog that can be looked at without Spark",
                        hint="use jdbc:sqlite: or jdbc:postgresql:")  # fmt: skip
    rest, _, query = lake.uri.removeprefix(_JDBC_POSTGRES).partition("?")
    parameters = dict(urllib.parse.parse_qsl(query))
    user = properties.get("jdbc.user") or parameters.pop("user", "")
    password = properties.get("jdbc.password") or parameters.pop("password", "")
    account = urllib.parse.quote(user, safe="") + (f":{urllib.parse.quote(password, safe='')}" if password else "")
    return f"postgresql+psycopg://{account}@{rest}" if account else f"postgresql+psycopg://{rest}"
