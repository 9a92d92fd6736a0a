"""Measures what kuvasz notes of many like sources in a table costs: bytes of its metadata, and time of a commit.

    python -m benchmarks.micro_notes [--sources 1 150 1000] [--columns 3 50] [--moved 1] [--commits 40]
        [--earlier] [--gzip]

A commit adds one file and moves the positions of `--moved` sources. `--earlier` writes notes as earlier versions did.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from kuvasz.config.load import load
from kuvasz.evolve import column_notes, known
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.format import layout, rule, source_positions
from kuvasz.lake.format.schema import wanted
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table.notes import PUBLISHED_PREFIX
from kuvasz.model import Seen, SourcePosition, Uniqueness
from kuvasz.ports import Target
from kuvasz.typemap import BUILTIN
from tests.support import earlier_notes
from tests.support.source_table import SourceTable

#: Types of columns, in turns: integer, text, numeric, timestamptz, jsonb.
_TYPES = [BUILTIN[oid] for oid in (23, 25, 1700, 1184, 3802)]


#: Of the commits, the last so many count.
_LAST = 20


class Source:
    """One database of many like ones, and what is noted of its table."""

    def __init__(self, number: int, columns: int) -> None:
        self.name = f"shop_{number:04}"
        self.table = SourceTable(*((f"column_{n}", _TYPES[n % 5]) for n in range(columns)), key=("column_0",))
        self.table.oid = self.table.file = 16_400 + 31 * number
        self.table.uniqueness = Uniqueness(self.table.oid + 5, self.table.oid + 4, self.table.oid + 4)
        self.table.versions = dict.fromkeys(self.table.live, 740 + number)
        self.lsn = (1 << 32) + 98_765_432 * (1 + number)

    def columns(self) -> SourceColumns:
        """What is known of its columns."""
        relation = dataclasses.replace(self.table.catalog(), seen=Seen(lsn=self.lsn, until=self.lsn + 56))
        return known.of(relation, {number: number for number in self.table.live})

    def position(self) -> SourcePosition:
        """How far it is."""
        self.lsn += 12_345
        return SourcePosition(
            lsn=self.lsn, commit_lsn=self.lsn - 456, rows=3, system_id="7361234567890123456", history=1,
            xid=742_817 + self.lsn % 9999, commit_us=817_000_000_000_000 + self.lsn,
        )  # fmt: skip


class Notes:
    """How notes are written."""

    def __init__(self, *, is_earlier: bool) -> None:
        self._is_earlier = is_earlier

    def position(self, source: Source) -> dict[str, str]:
        """Write a position."""
        render = earlier_notes.position if self._is_earlier else source_positions.render
        return {source_positions.PREFIX + source.name: render(source.position())}

    def all(self, source: Source) -> dict[str, str]:
        """Write all that is noted of a source."""
        name, columns = source.name, source.columns()
        noted = (
            {column_notes.PREFIX + name: earlier_notes.columns(columns)}
            if self._is_earlier
            else column_notes.render(name, columns)
        )
        published = f"{source.table.oid + 9}:{source.table.oid % 997}, table {source.table.oid + 10}:742"
        return {
            **noted,
            **self.position(source),
            rule.PREFIX + name: "-.-.-.-.error",
            PUBLISHED_PREFIX + name: published,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The commits of a table that are measured."""

    count: int
    moved: int  #: sources of each
    is_earlier: bool  #: summaries have an entry for each source, however many

    def make(self, table: IcebergTable, sources: list[Source], notes: Notes) -> list[float]:
        """Make them; return the seconds of each."""
        seconds = []
        for number in range(self.count):
            moved = (sources[(number + other) % len(sources)] for other in range(min(self.moved, len(sources))))
            told = {name: text for source in moved for name, text in notes.position(source).items()}
            seconds.append(commit(table, number, told, told if self.is_earlier else source_positions.packed(told)))
        return seconds


def measure(catalog: Catalog, name: str, sources: list[Source], notes: Notes, commits: Commits, codec: str) -> str:
    """Return the line of a table of so many sources."""
    target, relation = Target(name=name), sources[0].table.catalog()
    fields = wanted(target, relation)
    options = {"format-version": "3", "write.metadata.compression-codec": codec}
    table = catalog.create(name, fields, (), layout.wanted(target, fields), options)
    static: dict[str, str] = {}
    for source in sources:
        static |= notes.all(source)
    table.set_properties(static)
    begin = time.thread_time()
    column_notes.parse(static, name)
    parsed = time.thread_time() - begin
    times = commits.make(table, sources, notes)[-_LAST:]
    content, written = metadata(table)
    properties = sum(len(json.dumps({key: text})) + 4 for key, text in static.items() if ".shape." not in key)
    return (
        f"{len(sources):>6,} sources, {len(relation.columns):>2} columns: metadata {len(content):>10,} bytes"
        f" ({written:>10,} written), of a source {properties / len(sources):>7,.0f};"
        f" a commit {statistics.median(times) * 1e3:6.1f} ms, all notes parsed in {parsed * 1e3:6.1f} ms"
    )


def commit(table: IcebergTable, number: int, moved: Mapping[str, str], summary: Mapping[str, str]) -> float:
    """Commit a file and positions; return the seconds that took."""
    file = {"spec-id": 0, "content": "data", "file-path": f"{table.location}/data/{number}.parquet",
            "file-format": "parquet", "partition": [], "file-size-in-bytes": 1, "record-count": 2}  # fmt: skip
    ids = {"kuvasz.commit": f"{number:032x}", "kuvasz.anchor": f"{number:032x}"}
    begin = time.perf_counter()
    made = TableCommit(
        snapshot_id=table.snapshots.current_id, properties={**ids, **moved}, summary={**ids, **summary},
        data_files=[json.dumps(file)],
    )  # fmt: skip
    table.commit(made)
    return time.perf_counter() - begin


def metadata(table: IcebergTable) -> tuple[bytes, int]:
    """Return the table's newest metadata, and of how many bytes its file is."""
    folder = Path(table.location.removeprefix("file://").removeprefix("file:")) / "metadata"
    found = max(folder.glob("*.metadata.json"), key=lambda path: path.name).read_bytes()
    return (gzip.decompress(found) if found[:2] == b"\x1f\x8b" else found), len(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, nargs="+", default=[1, 150, 1000])
    parser.add_argument("--columns", type=int, nargs="+", default=[3, 50])
    parser.add_argument("--moved", type=int, default=1, help="sources that each commit moves")
    parser.add_argument("--commits", type=int, default=40)
    parser.add_argument("--earlier", action="store_true")
    parser.add_argument("--gzip", action="store_true", help="have Iceberg compress metadata")
    chosen = parser.parse_args()
    notes = Notes(is_earlier=chosen.earlier)
    commits = Commits(count=chosen.commits, moved=chosen.moved, is_earlier=chosen.earlier)
    with tempfile.TemporaryDirectory(prefix="kuvasz-notes-") as folder:
        file = Path(folder, "map.yaml")
        lake = {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/wh"}
        one = {"database": "shop", "urls": [{"url": "postgresql://nowhere/shop"}], "tables": {"items": {}}}
        server = {"server": {"address": None}, "pipeline": {"state": f"{folder}/state"}}
        file.write_text(json.dumps({"lake": lake, **server, "databases": [one]}))
        config = load(file, {}).config
        session = spark.open_session(config)
        try:
            catalog = Catalog(session, config.lake.name)
            catalog.ensure_namespace("shop")
            for columns in chosen.columns:
                for count in chosen.sources:
                    sources = [Source(number, columns) for number in range(count)]
                    codec = "gzip" if chosen.gzip else "none"
                    print(measure(catalog, f"shop.t{columns}_{count}", sources, notes, commits, codec), flush=True)
        finally:
            session.stop()


if __name__ == "__main__":
    main()
