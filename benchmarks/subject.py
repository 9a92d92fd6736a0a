"""What is measured: a lake, its sources, and the comparison of the two. kuvasz is run on them several times."""

from __future__ import annotations

import dataclasses
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
from pyiceberg.catalog import load_catalog

from benchmarks.outcome import WrongResultError
from benchmarks.run import Run
from benchmarks.watch import Place, Watch
from kuvasz.config import names
from kuvasz.demo.fingerprint import RowField, RowFingerprint, duckdb_query, postgres_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.store.emulator import ObjectStore

NAMESPACE = "bench"

#: PostgreSQL's functions take at most 100 arguments (FUNC_MAX_ARGS), so wide rows are compared in parts.
_COMPARED_AT_ONCE = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Databases with the same tables, as the map groups them."""

    database: str
    urls: Sequence[tuple[str | None, str]]  #: (sid, url)
    fields: Mapping[str, Sequence[RowField]]  #: table -> what is compared of it; the first field is its key
    prefix: str = ""  #: of the tables in the lake
    schemas: str = ""  #: of the databases that have them, as the map says which
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)  #: options of every table in the map

    def sources(self) -> Iterator[tuple[str, str | None, str]]:
        """Yield (name in kuvasz, sid, url)."""
        for sid, url in self.urls:
            yield names.source_name(self.database, sid), sid, url


class Subject:
    """One lake and its sources.

    Args:
        folder: For map, lake and logs; kuvasz runs in it.
        groups: What it replicates.
        pipeline: Options of the map's section `pipeline`.
        lake: Further options of its section `lake`.
        store: Where the tables' files are, if not in the folder.
        cluster: Options of its section `cluster`, if it has one.
        maintenance: Those of its section `maintenance`.
    """

    def __init__(
        self,
        folder: Path,
        groups: Sequence[Group],
        pipeline: Mapping[str, Any] | None = None,
        *,
        lake: Mapping[str, Any] | None = None,
        store: ObjectStore | None = None,
        cluster: Mapping[str, Any] | None = None,
        maintenance: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self._store = store
        self.groups = groups
        (folder / "lake").mkdir(parents=True, exist_ok=True)
        self.coordinator: str | None = (cluster or {}).get("coordinator")  #: of its staged log, if it has one
        self.map = folder / "map.yaml"
        document: dict[str, Any] = {
            "lake": {
                "uri": f"jdbc:sqlite:{folder.absolute()}/lake/catalog.db",
                "warehouse": f"{folder.absolute()}/lake/warehouse",
                "namespace": NAMESPACE,
                **(store.lake if store else {}),
                **(lake or {}),
            },
            "pipeline": dict(pipeline or {}),
            "maintenance": dict(maintenance or {}),
            "server": {"address": f"127.0.0.1:{_free_port()}"},
            "databases": [_entry(group) for group in groups],
            **({"cluster": dict(cluster)} if cluster else {}),
        }
        self.map.write_text(json.dumps(document, indent=2))  # JSON is YAML

    @property
    def urls(self) -> list[str]:
        """Every source."""
        return [url for group in self.groups for _, url in group.urls]

    @property
    def tables(self) -> list[str]:
        """Every table of the lake."""
        return [f"{group.prefix}{table}" for group in self.groups for table in group.fields]

    @property
    def copies(self) -> int:
        """How many source tables are copied at the first start."""
        return sum(len(group.urls) * len(group.fields) for group in self.groups)

    def places(self, lsns: Mapping[str, int]) -> dict[Place, int]:
        """Return what must be seen in the lake for every table to have passed its source's LSN, given by url."""
        return {
            (f"{group.prefix}{table}", source): lsns[url]
            for group in self.groups
            for source, _, url in group.sources()
            for table in group.fields
        }

    def start(self, *options: str, command: tuple[str, ...] = ()) -> Run:
        """Start kuvasz on the map."""
        return Run(self.folder, self.map, options, command)

    def watch(self, *, interval_s: float = 0.01) -> Watch:
        """Watch the tables' positions from now on."""
        read = self._store.read if self._store else None
        return Watch(self.folder / "lake" / "catalog.db", self.tables, interval_s=interval_s, read=read)

    # Comparison

    def compare(self) -> int:
        """Compare every table with its sources by content and return the rows that were compared.

        Raises:
            WrongResultError: Some differ.
        """
        pairs = [pair for group in self.groups for table in group.fields for pair in _pairs(self, group, table)]
        wrong = [
            f"{place} ({columns}): source {source}, lake {lake}"
            for place, columns, source, lake in pairs
            if source != lake
        ]
        if wrong:
            raise WrongResultError(*wrong)
        return sum({place: source.rows for place, _, source, _ in pairs}.values())

    def scan(self, table: str) -> Any:
        """Return PyIceberg's scan of a table."""
        properties = self._store.pyiceberg if self._store else {}
        catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{self.folder}/lake/catalog.db", **properties)
        return catalog.load_table(f"{NAMESPACE}.{table}").scan()


def _pairs(subject: Subject, group: Group, table: str) -> Iterator[tuple[str, str, RowFingerprint, RowFingerprint]]:
    """Yield place, columns, what the source has of them, and what the lake has."""
    for part in _parts(group.fields[table]):
        in_lake = _lake(subject, f"{group.prefix}{table}", part, [sid for sid, _ in group.urls])
        for sid, url in group.urls:
            place = f"{group.prefix}{table} of {sid}" if sid else f"{group.prefix}{table}"
            columns = f"{part[0].name}, {part[1].name} to {part[-1].name}"
            yield place, columns, _source(url, table, part), in_lake[sid]


def _parts(fields: Sequence[RowField]) -> Iterator[Sequence[RowField]]:
    key, *others = fields
    for first in range(0, len(others), _COMPARED_AT_ONCE):
        yield (key, *others[first : first + _COMPARED_AT_ONCE])


def _source(url: str, table: str, fields: Sequence[RowField]) -> RowFingerprint:
    with psycopg.connect(url) as connection:
        [(rows, total)] = connection.execute(postgres_query(table, fields)).fetchall()
    return RowFingerprint(rows=int(rows), total=int(total))


def _lake(
    subject: Subject, table: str, fields: Sequence[RowField], sids: list[str | None]
) -> dict[str | None, RowFingerprint]:
    found = {}
    scan = subject.scan(table)
    with duckdb.connect() as connection:
        if sids == [None]:
            connection.register("lake", scan.to_arrow_batch_reader())
        else:  # read once for all sources: a batch reader is spent after one query
            connection.register("lake", scan.to_arrow())
        for sid in sids:
            [(rows, total)] = connection.execute(duckdb_query("lake", fields, sid=sid)).fetchall()
            found[sid] = RowFingerprint(rows=int(rows), total=int(total))
    return found


def _entry(group: Group) -> dict[str, Any]:
    return {
        "database": group.database,
        "urls": [
            {"url": url, **({"sid": sid} if sid else {}), **({"schemas": group.schemas} if group.schemas else {})}
            for sid, url in group.urls
        ],
        "tables": {table: _table(group, table) for table in group.fields},
    }


def _table(group: Group, table: str) -> dict[str, Any] | None:
    target = {"target": f"{group.prefix}{table}"} if group.prefix else {}
    return {**target, **group.spec} or None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
