"""The catalog of a folder, which is a file of SQLite's, and its tables' metadata, read without PyIceberg.

PyIceberg, SQLAlchemy and PyArrow take a second of CPU to load, and `check` and `plan` ask a catalog for little: what
two tables of it say (Iceberg, "JDBC catalog": `iceberg_tables`, `iceberg_namespace_properties`), and a few words of
the tables' JSON (Iceberg spec, appendix C). What does not look as usual is left to PyIceberg, with what there is to
say of it.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kuvasz.errors import SchemaError
from kuvasz.lake.files.file_io import is_plain
from kuvasz.lake.files.folder_files import path_of
from kuvasz.lake.format import schema
from kuvasz.typemap import iceberg_name
from kuvasz.verbs.catalogs.table_facts import SnapshotFacts, TableFacts

#: The two tables, as whoever lists namespaces asks for them.
_NAMESPACES = (
    "SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?"
    " UNION SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?"
)
_PLACE = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)

#: Formats that kuvasz makes tables in; what is in others is read by PyIceberg.
_FORMATS: Final = frozenset({2, 3})

#: How SQLite says that there is no table of that name.
_NO_TABLE: Final = "no such table: iceberg_"


class Unusual(Exception):
    """A table that is not read here; it may be read by PyIceberg."""


class SqliteCatalog:
    """A catalog in a file that is there.

    Args:
        file: Where.
        name: The catalog's, for a file may have several.
        properties: The map's for the catalog, which may name another way to the files.
    """

    def __init__(self, file: Path, name: str, properties: Mapping[str, str]) -> None:
        self._file = file
        self._name = name
        self._properties = properties

    def has_tables(self) -> bool:
        """Return whether the file has a catalog's tables; False: a start makes them.

        Raises:
            sqlite3.Error: It cannot be read, or has others of these names.
        """
        with self._opened() as connection:
            return _asked(connection, _NAMESPACES, (self._name, self._name)) is not None

    def table(self, name: str) -> TableFacts | None:
        """Return a table, None if there is none.

        Raises:
            sqlite3.Error: The file cannot be read.
            Unusual: The table is to be read by PyIceberg.
        """
        namespace, _, table = name.rpartition(".")
        with self._opened() as connection:
            found = _asked(connection, _PLACE, (self._name, namespace, table))
        if not found:
            return None
        ((location,),) = found
        if not location or not is_plain(self._properties, location):
            raise Unusual
        try:
            return _facts(json.loads(Path(path_of(location)).read_bytes()), location)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SchemaError) as error:
            raise Unusual from error

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        # Not read only: SQLite may have to put back what a killed process had half written. It is not made.
        where = f"file:{urllib.parse.quote(str(self._file))}?mode=rw"
        with contextlib.closing(sqlite3.connect(where, uri=True)) as connection:
            yield connection


def _asked(connection: sqlite3.Connection, statement: str, values: tuple[str, ...]) -> list[tuple[Any, ...]] | None:
    """Return the rows; None if there is no table that they are in."""
    try:
        return connection.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if _NO_TABLE in str(error):
            return None
        raise


def _facts(told: Mapping[str, Any], location: str) -> TableFacts:
    """Return what a table's metadata say.

    Raises:
        Unusual: They are of another format.
        SchemaError: A column has a type that kuvasz gives none.
        KeyError: Something is missing in them.
    """
    if told["format-version"] not in _FORMATS:
        raise Unusual
    number = told["current-schema-id"]
    (current,) = (one for one in told["schemas"] if one["schema-id"] == number)
    newest = told.get("current-snapshot-id")
    return TableFacts(
        columns={field.name: iceberg_name(field.type) for field in schema.parse(json.dumps(current)).fields},
        properties=told.get("properties") or {},
        branches={name: ref["snapshot-id"] for name, ref in (told.get("refs") or {}).items()},
        current_id=None if newest == -1 else newest,  # Java has written -1 for none
        snapshots=[
            SnapshotFacts(
                id=one["snapshot-id"], parent_id=one.get("parent-snapshot-id"), at_ms=one["timestamp-ms"],
                summary={key: text for key, text in (one.get("summary") or {}).items() if key != "operation"},
            )
            for one in told.get("snapshots") or ()
        ],
        location=location,
    )  # fmt: skip


__all__ = ["SqliteCatalog", "Unusual"]
