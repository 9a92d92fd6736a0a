"""A lake under test, with what a reader of it sees."""

from __future__ import annotations

import contextlib
import sqlite3
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from examples.sqlite_lake import SqliteLake
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.model import Relation, SourcePosition
from kuvasz.ports import Failure, Lake, Pending, Receipt, TableWork
from kuvasz.state.store import state_of
from tests.support import oracle
from tests.support.changes import ITEMS, TARGET, Lines, feed, target
from tests.support.lake import LakeFolder

#: Maintenance that does nothing by itself, so that a test does all of it.
QUIET = {"interval": "1d", "merge_interval": "1d"}


class World:
    """A lake, and how to look into it."""

    lake: Lake

    def prepare(self, *sources: str, name: str = TARGET, relation: Relation = ITEMS) -> None:
        """Make a target that has been copied from empty sources."""
        for source in sources:
            self.lake.prepare(target(name), feed(source, name), relation)
            self.copy(source, name=name, relation=relation)

    def copy(
        self, source: str, *rows: tuple, lsn: int = 1000, name: str = TARGET, relation: Relation = ITEMS
    ) -> Receipt:
        at = SourcePosition(lsn=lsn, system_id="7001")
        return self.lake.copy(feed(source, name), relation, [Lines(rows)] if rows else [], at, lambda *_: None)

    def apply(self, *works: TableWork) -> Sequence[Receipt | Failure]:
        """Write and commit."""
        return self.commit(self.lake.write(works))

    def commit(self, written: object) -> Sequence[Receipt | Failure]:
        """Commit, and wait for what takes long."""
        outcomes = [one.outcome.result() if isinstance(one, Pending) else (one,) for one in self.lake.commit(written)]
        return [outcome for some in outcomes for outcome in some]

    def applied(self, *works: TableWork) -> Sequence[Receipt]:
        """Write and commit what must not fail."""
        outcomes = self.apply(*works)
        receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        assert len(receipts) == len(outcomes), outcomes
        return receipts

    def table(self, name: str) -> pa.Table:
        raise NotImplementedError

    def snapshots(self, name: str = TARGET) -> int:
        raise NotImplementedError

    def orphans(self, name: str = TARGET) -> list[str]:
        """Files that no snapshot knows."""
        raise NotImplementedError

    def rows(self, name: str = TARGET) -> dict[tuple, tuple]:
        """(sid, id) -> all other values; a key that is there twice is an error."""
        found = self.table(name).to_pylist()
        rows = {(row.pop("sid", None), row.pop("id")): tuple(row.values()) for row in found}
        assert len(rows) == len(found), f"duplicate keys: {found}"
        return rows

    def of(self, source: str, name: str = TARGET) -> dict[int, tuple]:
        """Rows of one source."""
        return {key: values for (sid, key), values in self.rows(name).items() if sid == source}

    def position(self, source: str, name: str = TARGET) -> int:
        return self.lake.positions(name)[source].lsn


class MemoryWorld(World):
    lake: MemoryLake

    def __init__(self, chunk_bytes: int) -> None:
        self.lake = MemoryLake(chunk_bytes)
        self.lake.open()

    def table(self, name: str) -> pa.Table:
        return self.lake.rows(name)

    def snapshots(self, name: str = TARGET) -> int:
        return self.lake.snapshots(name)

    def orphans(self, name: str = TARGET) -> list[str]:
        return []


class SqliteWorld(MemoryWorld):
    """See `World`; whatever a test looks at has to be in the file as well."""

    lake: SqliteLake

    def __init__(self, file: Path) -> None:
        self._file = file
        self.lake = SqliteLake(file)
        self.lake.open()

    def table(self, name: str) -> pa.Table:
        found = super().table(name)
        with contextlib.closing(sqlite3.connect(self._file)) as database:
            if self.lake.snapshots(name):
                (kept,) = database.execute(f'SELECT count(*) FROM "{name}"').fetchone()
                assert kept == found.num_rows
            query = "SELECT source, lsn FROM positions WHERE target = ?"
            kept_lsns = dict(database.execute(query, (name,)).fetchall())
        reached = {source: position.lsn for source, position in self.lake.positions(name).items()}
        assert {source: lsn for source, lsn in kept_lsns.items() if source in reached} == reached
        return found


class IcebergWorld(World):
    def __init__(self, folder: LakeFolder, maintenance: Mapping[str, object] | None = None) -> None:
        self._folder = folder
        database = {"database": "shop", "urls": [{"url": "postgresql:///none"}], "tables": {"items": None}}
        self.config = folder.config([database], maintenance)
        self.lake = IcebergLake(self.config, state_of(self.config).witness, folder.session)
        self.lake.open()

    @property
    def catalog(self) -> str:
        """The catalog's name in Spark."""
        return self._folder.catalog

    @property
    def session(self) -> Any:
        """Spark."""
        return self._folder.session

    def sql(self, statement: str) -> list[Any]:
        """Run a statement as another engine would, and return its rows."""
        return self.session.sql(statement).collect()

    def iceberg(self, name: str = TARGET) -> Table:
        """The table as PyIceberg sees it."""
        return self._iceberg(name)

    def spark_rows(self, name: str = TARGET) -> list[dict]:
        """The rows as Spark reads them."""
        return [row.asDict() for row in self._folder.session.table(f"{self._folder.catalog}.{name}").collect()]

    def _iceberg(self, name: str) -> Table:
        return oracle.open_table(self._folder.pyiceberg, name, catalog=self._folder.catalog)

    def table(self, name: str) -> pa.Table:
        return self._iceberg(name).scan().to_arrow()

    def snapshots(self, name: str = TARGET) -> int:
        return len(self._iceberg(name).metadata.snapshots)

    def orphans(self, name: str = TARGET) -> list[str]:
        table = self._iceberg(name)
        known = set()
        for snapshot in table.metadata.snapshots:
            for manifest in snapshot.manifests(table.io):
                known |= {_path(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io)}
        folder = Path(_path(table.location())) / "data"
        return sorted(file.name for file in folder.glob("kvsz-*") if str(file) not in known)


def _path(location: str) -> str:
    return urllib.parse.urlparse(location).path
