"""The lake against its sources, row by row through their fingerprints, as Spark sees the lake."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING

from kuvasz.demo import shop
from kuvasz.demo.fingerprint import RowFingerprint, spark_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One table of one source in both places; `lake` is None while the target does not exist."""

    table: str
    sid: str
    source: RowFingerprint
    lake: RowFingerprint | None

    @property
    def is_equal(self) -> bool:
        """Say whether both hold the same rows."""
        return self.source == self.lake


def compare(
    session: SparkSession,
    namespace: str,
    sources: Mapping[str, Mapping[str, RowFingerprint]],
    tables: Sequence[shop.Table] = shop.TABLES,
) -> list[Line]:
    """Return a line per table and sid.

    Args:
        session: A session with the lake's catalog.
        namespace: Catalog and namespace of the targets, such as ``kuvasz.shop``.
        sources: sid -> table -> content at the source.
        tables: The tables to compare.
    """
    lines: list[Line] = []
    for table in tables:
        found = _fingerprints(session, f"{namespace}.{table.name}", table)
        for sid, contents in sources.items():
            lake = None if found is None else found.get(sid, RowFingerprint(rows=0, total=0))
            lines.append(Line(table=table.name, sid=sid, source=contents[table.name], lake=lake))
    return lines


def ages(session: SparkSession, namespace: str) -> dict[str, float]:
    """Return how many seconds ago each table's newest visible commit was made; tables that exist only."""
    found: dict[str, float] = {}
    for table in shop.TABLES:
        target = f"{namespace}.{table.name}"
        if session.catalog.tableExists(target):
            # As a number: collect() would turn a timestamp into the local time of this process.
            [row] = session.sql(f"SELECT unix_micros(max(committed_at)) FROM {target}.snapshots").collect()
            if row[0] is not None:
                found[table.name] = datetime.datetime.now(datetime.UTC).timestamp() - row[0] / 1_000_000
    return found


def _fingerprints(session: SparkSession, target: str, table: shop.Table) -> dict[str, RowFingerprint] | None:
    if not session.catalog.tableExists(target):
        return None
    rows = session.sql(spark_query(target, table.fields)).collect()
    return {row[0]: RowFingerprint(rows=int(row[1]), total=int(row[2])) for row in rows}
