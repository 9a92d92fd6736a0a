"""The lake as a reader sees it, without Spark and without changing anything: for `kuvasz plan` and `kuvasz check`.

The catalog of a folder is read as it lies there, every other one by PyIceberg, which is loaded for that alone.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.config.model import LakeConfig
from kuvasz.errors import LakeError
from kuvasz.evolve import column_notes
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.definition.lineage import LakeSnapshot, Lineage, lineage_of
from kuvasz.lake.format import rule, source_positions, table_identity
from kuvasz.lake.iceberg import conditions
from kuvasz.model import SourcePosition, TableType
from kuvasz.state.store import state_of
from kuvasz.verbs.catalogs.sqlite_catalog import SqliteCatalog, Unusual
from kuvasz.verbs.catalogs.table_facts import TableFacts, of_table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from kuvasz.config.model import Config

_HINT = "check `lake.uri`, `lake.properties` and the permissions"


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
        self._file = _file_of(config.lake)
        # SQLite would make the file by being asked for it.
        self._is_to_be_made = config.lake.sqlite_file is not None and self._file is None
        if self._file is not None:
            _has_tables(self._file)  # says what is wrong with it
        elif not self._is_to_be_made:
            _ = self._catalog

    @functools.cached_property
    def _catalog(self) -> Catalog:
        from kuvasz.verbs.catalogs import pyiceberg_catalog

        return pyiceberg_catalog.opened(self._config)

    def table(self, name: str) -> LakeTableView | None:
        """Return a table, None if there is none.

        Raises:
            LakeError: The catalog does not answer, or what kuvasz noted in the table is damaged.
        """
        found = self._facts(name)
        return None if found is None else _seen(found, name)

    def lineage(self, name: str) -> LineageView | None:
        """Return a table with its snapshots, None if there is none.

        Raises:
            LakeError: The catalog does not answer, or what kuvasz noted in the table is damaged.
        """
        found = self._facts(name)
        if found is None:
            return None
        positions, kind = source_positions.parse(found.properties, name), table_identity.made_as(found.properties)
        snapshots = _snapshots_of(found, name)
        if kind is TableType.HISTORY:  # what it was before has no versions
            snapshots.pop(table_identity.last_of_another_type(found.properties) or 0, None)
        return LineageView(
            lineage=lineage_of(snapshots, _head_of(found), positions),
            type=kind,
            metadata_location=found.location,
        )

    def load(self, name: str) -> Table | None:
        """Return a table as PyIceberg has it, None if there is none.

        Raises:
            LakeError: The catalog does not answer.
        """
        if self._is_to_be_made:
            return None
        from kuvasz.verbs.catalogs import pyiceberg_catalog

        return pyiceberg_catalog.load(self._catalog, name)

    def _facts(self, name: str) -> TableFacts | None:
        if self._is_to_be_made:
            return None
        if self._file is not None:
            try:
                return self._file.table(name)
            except sqlite3.Error as error:
                raise LakeError(f"the catalog cannot be read: {error}", hint=_HINT) from error
            except Unusual:  # PyIceberg knows, or says what is wrong with it
                pass
        found = self.load(name)
        return None if found is None else of_table(found)


def _file_of(lake: LakeConfig) -> SqliteCatalog | None:
    """Return the catalog of a folder; None if it is another kind of catalog, or is not there."""
    file = lake.sqlite_file
    return None if file is None or not file.is_file() else SqliteCatalog(file, lake.name, lake.properties)


def _has_tables(file: SqliteCatalog) -> bool:
    try:
        return file.has_tables()
    except sqlite3.Error as error:
        raise LakeError(f"the catalog cannot be opened: {error}", hint=_HINT) from error


def head_of(found: Table) -> int | None:
    """Return the newest snapshot of the branch that is written; of main, as long as there is no such branch."""
    return _head_of(of_table(found))


def _head_of(found: TableFacts) -> int | None:
    branch = found.properties.get(table_identity.BRANCH_PROPERTY, table_identity.MAIN)
    return found.branches.get(branch, found.current_id)


def snapshots_of(found: Table, name: str) -> dict[int, LakeSnapshot]:
    """Return the snapshots of a table, by their ids.

    Raises:
        LakeError: What kuvasz noted in one is damaged.
    """
    return _snapshots_of(of_table(found), name)


def _snapshots_of(found: TableFacts, name: str) -> dict[int, LakeSnapshot]:
    return {
        one.id: LakeSnapshot(
            id=one.id, parent_id=one.parent_id, at_ms=one.at_ms,
            positions=source_positions.parse(one.summary, name),
            newest_us=source_positions.parse_newest(one.summary),
        )
        for one in found.snapshots
    }  # fmt: skip


def seen(found: Table, name: str) -> LakeTableView:
    """Return what kuvasz knows of a table.

    Raises:
        LakeError: What it noted in the table is damaged.
    """
    return _seen(of_table(found), name)


def _seen(found: TableFacts, name: str) -> LakeTableView:
    known = column_notes.parse(found.properties, name)
    return LakeTableView(
        columns=found.columns,
        known=known,
        positions=source_positions.parse(found.properties, name),
        rules={
            key.removeprefix(rule.PREFIX): value
            for key, value in found.properties.items()
            if key.startswith(rule.PREFIX)
        },
        oids={source: one.oid for source, one in known.items()},
        made=found.properties,
        is_empty=_head_of(found) is None,
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
    if (file := _file_of(lake)) is not None:
        return "an answer" if _has_tables(file) else "to be made"
    from kuvasz.verbs.catalogs import pyiceberg_catalog

    return pyiceberg_catalog.prove(pyiceberg_catalog.opened(lake))


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
