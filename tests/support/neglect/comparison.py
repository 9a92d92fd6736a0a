"""What a table of the lake has to be while it streams, by its type."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Any
from unittest import mock

from kuvasz.lake.copies.copy_commits import CopiedTable, CopyCommits
from kuvasz.lake.format import gaps
from kuvasz.model import TableType
from tests.support import model, oracle
from tests.support.neglect import journal
from tests.support.neglect.depot import SID
from tests.support.neglect.service import EU

if TYPE_CHECKING:
    from tests.support.neglect.tables import Table
    from tests.support.neglect.world import World

Row = dict[str, Any]


class Comparison:
    """Compares tables of the lake with the source, and with its journal; use it as a context manager."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._copied_at: dict[str, int] = {}  #: target -> LSN of its last copy
        self._patch = mock.patch.object(CopyCommits, "commit", _noting(self._copied_at, CopyCommits.commit))

    def __enter__(self) -> Comparison:
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def difference(self, table: Table) -> str:
        """Return how a table differs; nothing if it does not."""
        if table is self.world.members:
            return self._of_members()
        source = oracle.source_rows(self.world.database.url, table.name, sid="eu", where=table.where)
        lake = self._lake(table, "eu")
        if table.kind is TableType.APPEND:
            return self._of_append(table, source, lake)
        if table.kind is TableType.CHANGELOG:
            return self._of_changelog(table, source, lake)
        if table.kind is TableType.HISTORY:
            return _of_history(source, lake)
        return _unlike(source, lake)

    def difference_of_depot(self, table: Table) -> str:
        """Return how the second source's rows of a table differ."""
        depot = self.world.depot
        return _unlike(depot.rows(table), self._lake(table, SID)) if depot is not None and depot.feeds(table) else ""

    def _lake(self, table: Table, sid: str) -> oracle.Rows:
        """The rows of one source."""
        lake = self.world.lake
        found = oracle.lake_rows_pyiceberg(lake.pyiceberg, table.identifier, catalog=lake.catalog)
        place = found.columns.index("sid")
        rows = {row: count for row, count in found.rows.items() if row[place] == sid}
        return oracle.Rows(columns=found.columns, rows=collections.Counter(rows))

    def _of_members(self) -> str:
        members = self.world.members
        if not members.is_taken:
            return ""
        found = [oracle.source_rows(self.world.database.url, name, sid="eu") for name in members.names]
        lake = self._lake(members, "eu").select(found[0].columns)
        rows: collections.Counter = sum((one.rows for one in found), collections.Counter())
        return "" if rows == lake.rows else f"{rows.total()} rows at the source, {lake.rows.total()} in the lake"

    def _of_append(self, table: Table, source: oracle.Rows, lake: oracle.Rows) -> str:
        """Every version since the copy is there once, as it was written, but for those in a gap."""
        found = {row["stamp"]: row for row in _rows(lake)}
        if len(found) != len(lake):
            return f"{len(lake)} rows of {len(found)} versions"
        now = [row for row in _rows(source) if row["stamp"] in self._told(table, since=0)]
        missing = self._told(table, since=self._since(table)) - found.keys()
        wrong = [row for row in now if row != _part(found.get(row["stamp"], {}), row)]
        return f"{self._missing(table, missing)}, wrong {wrong[:5]}" if missing or wrong else ""

    def _of_changelog(self, table: Table, source: oracle.Rows, lake: oracle.Rows) -> str:
        """Replayed it is the source, no event is there twice, and every version since the copy is there."""
        rows = _rows(lake)
        events = [(row["_lsn"], row["_ordinal"]) for row in rows if row["_op"] != "R"]
        if len(events) != len(set(events)):
            return "an event is there twice"
        stamps = {row.get("stamp") for row in rows}
        if missing := self._told(table, since=self._since(table)) - stamps:
            return self._missing(table, missing)
        return self._of_replayed(table, {row["id"]: row for row in _rows(source)}, rows)

    def _of_replayed(self, table: Table, now: dict[int, Row], lake: list[Row]) -> str:
        replayed = _replay(lake)
        ids = now.keys() | replayed.keys()
        if missed := self._gaps(table):  # what happened to a key since is known all the same
            # LSNs of before the source was put back may be greater than those of now, and would come last.
            last = max(*(to for _, to in missed), *(row["_lsn"] for row in lake if row["_op"] == "R"))
            ids &= {entry.id for entry in journal.read(self.world.database, table.target) if entry.at > last}
        wrong = [(now.get(id_), replayed.get(id_)) for id_ in sorted(ids)
                 if now.get(id_) != _part(replayed.get(id_), now.get(id_))]  # fmt: skip
        return f"replayed otherwise: {wrong[:3]}" if wrong else ""

    def _told(self, table: Table, *, since: int) -> set[str]:
        """Stamps of the versions that the stream has told since an LSN: what was not missed in a gap."""
        missed = self._gaps(table)
        return {
            entry.stamp for entry in journal.read(self.world.database, table.target)
            if entry.stamp is not None and entry.at >= since
            and not any(gap[0] <= entry.until and entry.at <= gap[1] for gap in missed)
        }  # fmt: skip

    def _missing(self, table: Table, stamps: set[str]) -> str:
        """Where in the WAL they were written, for whoever looks for the reason."""
        entries = [one for one in journal.read(self.world.database, table.target) if one.stamp in stamps]
        where = sorted((f"{one.at:X}", f"{one.until:X}", one.id) for one in entries)
        gaps_ = [tuple(f"{end:X}" for end in gap) for gap in self._gaps(table)]
        return f"{len(stamps)} versions are missing: {where[:5]}; gaps {gaps_}, copied at {self._since(table):X}"

    def _since(self, table: Table) -> int:
        return self._copied_at.get(table.identifier, 0)

    def _gaps(self, table: Table) -> list[tuple[int, int]]:
        """LSNs between which a table says that it misses changes."""
        lake = self.world.lake
        properties = oracle.open_table(lake.pyiceberg, table.identifier, catalog=lake.catalog).properties
        found = gaps.parse(properties, EU, table.identifier)
        # Of a server that was put back, LSNs of two pasts cannot be compared.
        return [(0 if self.world.owns_server else gap.from_lsn, gap.to_lsn or 2**63) for gap in found]


def _noting(copied_at: dict[str, int], commit: Any) -> Any:
    def noted(commits: CopyCommits, copied: CopiedTable) -> Any:
        copied_at[copied.order.table.name] = copied.position.lsn
        return commit(commits, copied)

    return noted


def _rows(rows: oracle.Rows) -> list[Row]:
    return [dict(zip(rows.columns, row, strict=True)) for row in rows.rows.elements()]


def _part(row: Row | None, columns: Row | None) -> Row | None:
    """A row with another one's columns. One that the source has with NULLs alone may come late."""
    return None if row is None else {name: row.get(name) for name in columns or row}


def _unlike(source: oracle.Rows, lake: oracle.Rows) -> str:
    # A column that was dropped stays in the lake.
    lake = lake.select(source.columns)
    return "" if source.rows == lake.rows else oracle.difference(source, lake, key=("id",))


def _of_history(source: oracle.Rows, lake: oracle.Rows) -> str:
    """The open versions are the source's rows, and no two of a key overlap."""
    versions = _rows(lake)
    now = [tuple(row.get(name) for name in source.columns) for row in versions if row["kvsz_end"] == model.FOREVER]
    if different := _unlike(source, oracle.Rows(columns=source.columns, rows=collections.Counter(now))):
        return different
    versions.sort(key=lambda row: (row["id"], row["kvsz_start"], row["kvsz_end"]))
    for row in versions:
        if row["kvsz_start"] >= row["kvsz_end"]:
            return f"a version is empty: {row}"
    for one, after in itertools.pairwise(versions):
        if one["id"] == after["id"] and one["kvsz_end"] > after["kvsz_start"]:
            return f"versions overlap: {one} {after}"
    return ""


def _replay(events: list[Row]) -> dict[int, Row]:
    """Rows by id after all events of a changelog."""
    rows: dict[int, Row] = {}
    for event in sorted(events, key=lambda event: (event["_lsn"], -1 if event["_op"] == "R" else event["_ordinal"])):
        if event["_op"] == "T":
            rows.clear()
            continue
        old = dict(event["_old_key"] or ())
        rows.pop(int(old["id"]) if old else event["id"], None)
        if event["_op"] != "D":
            rows[event["id"]] = event
    return rows
