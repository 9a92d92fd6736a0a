"""kuvasz is killed while rows are rejected: each is written down once, and no other row is missing or doubled."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import oracle
from tests.support.failpoints import COPYING, KILLS, REJECTING
from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

COLUMNS = "(id bigint PRIMARY KEY, tag text, at timestamp, n int, kind text, body text)"

#: What a row has that fits.
FITS = {"at": "'today'", "n": "5", "kind": "'a'", "body": "'x'"}

#: Table -> what a row has that does not: its value, its expression, and its route.
UNFIT = {
    "items": ("at", "'infinity'"), "versions": ("at", "'infinity'"), "added": ("at", "'infinity'"),
    "kept": ("at", "'infinity'"), "shares": ("n", "0"), "events": ("kind", "'c'"),
}  # fmt: skip

#: Those that take rows which are too large for the map, in the stream.
LARGE = ("items", "versions", "added", "kept")

#: Those that show the last version of a row: one that is replaced at once need not be written down.
CLONES = ("items", "kept", "shares", "events")

#: Those that have each version that fits: no later one that does takes its place.
WHOLE = ("versions", "added", "kept")

#: Those that are tried again when the map is mended.
TRIED = ("items", "versions", "kept")

#: Table -> the target that its rows are rejected of.
TARGETS = {name: "of_a" if name == "events" else name for name in UNFIT}

ROUTE: dict[str, Any] = {"by": "kind", "to": "of_{kind}", "allow": ["a", "b"]}
SET = {"id": "id", "tag": "tag", "n": "n", "share": "CAST(100 / n AS int)"}
TABLES: dict[str, dict[str, Any]] = {
    "items": {}, "versions": {"type": "history"}, "added": {"type": "append"}, "shares": {"set": SET},
    "kept": {"on_bad_value": "keep"}, "events": {"route": ROUTE},
}  # fmt: skip
MENDED: dict[str, dict[str, Any]] = {
    **{name: TABLES[name] | {"out_of_range": "null"} for name in LARGE},
    "shares": {"set": SET | {"share": "CAST(try_divide(100, n) AS int)"}},
    "events": {"route": ROUTE | {"rest": "others"}},
}
OPEN = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


def rejecting(tables: dict[str, dict[str, Any]]) -> dict[str, dict | None]:
    return {name: {"on_bad_value": "reject"} | options for name, options in tables.items()}


@dataclasses.dataclass
class Misfits:
    """Rows of the source, some of which do not fit, each version with a tag of its own.

    Attributes:
        fits: Table -> tags of those that fit.
        unfit: Table -> tags of those that do not.
        replaced: Table -> of these, those that a later change has replaced.
    """

    database: Database
    fits: dict[str, list[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    unfit: dict[str, list[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    replaced: dict[str, set[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))
    batches: int = 0

    def create(self) -> None:
        for name, (column, value) in UNFIT.items():
            self.database.execute(f"CREATE TABLE {name} {COLUMNS}")
            for batch in range(1, 4):
                self._insert(name, 10 * batch + 1, f"{batch}.1", {})
                self._insert(name, 10 * batch + 2, f"{batch}.2", {column: value})
                self.fits[name].append(f"{batch}.1")
                self.unfit[name].append(f"{batch}.2")
        self.batches = 3

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Change the tables all the time."""
        stop, failed = threading.Event(), list[Exception]()

        def run() -> None:
            try:
                while not stop.wait(0.2):
                    self.batch()
            except Exception as error:  # noqa: BLE001 (raised below)
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not failed, failed

    def batch(self) -> None:
        """Bring rows in, have one not fit any more and one fit again, and delete one that did not."""
        self.batches += 1
        at, begin = self.batches, 10 * self.batches
        for name, (column, value) in UNFIT.items():
            with self.database.connect() as session:
                session.execute(_insert(name, begin + 1, f"{at}.1", {}))
                session.execute(_insert(name, begin + 2, f"{at}.2", {column: value}))
                session.execute(f"UPDATE {name} SET tag = '{at}.4', {column} = {value} WHERE id = {begin - 9}")
                session.execute(
                    f"UPDATE {name} SET tag = '{at}.5', {column} = {FITS[column]} WHERE id = {begin - 18}"
                )
                if name in LARGE:
                    session.execute(_insert(name, begin + 3, f"{at}.3", {"body": "repeat('y', 70000)"}))
                    session.execute(f"DELETE FROM {name} WHERE id = {begin - 27}")
            self.fits[name] += [f"{at}.1", f"{at}.5"]
            self.unfit[name] += [f"{at}.2", f"{at}.4"] + [f"{at}.3"] * (name in LARGE)
            self.replaced[name] |= {f"{at - 2}.2", f"{at - 3}.3"}

    def _insert(self, name: str, id_: int, tag: str, other: dict[str, str]) -> None:
        self.database.execute(_insert(name, id_, tag, other))


def _insert(name: str, id_: int, tag: str, other: dict[str, str]) -> str:
    values = {"id": str(id_), "tag": f"'{tag}'"} | FITS | other
    return f"INSERT INTO {name} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def told(process: Process) -> list[dict[str, Any]]:
    """What a person is told of the rejected rows."""
    answer = process.run("rejects", "--json", "--limit", "1000000")
    assert answer.returncode == 0, answer.stderr
    found: list[dict[str, Any]] = json.loads(answer.stdout)
    return found


def assert_told(process: Process, misfits: Misfits) -> None:
    """Each row that does not fit is told of once; of a clone it may be missing where it was replaced."""
    found = told(process)
    tags = collections.Counter((row["target"], json.loads(row["raw_row"])["tag"]) for row in found)
    assert max(tags.values()) == 1, [item for item in tags.items() if item[1] > 1][:5]
    for name, target in TARGETS.items():
        mine = {tag for its, tag in tags if its == f"shop.{target}"}
        unfit = set(misfits.unfit[name])
        must = unfit - misfits.replaced[name] if name in CLONES else unfit
        assert (must - mine, mine - unfit) == (set(), set()), name
    whole = oracle.open_table(process.pyiceberg, "_kuvasz.rejects").scan().to_arrow().num_rows
    assert whole > len(found), "a kill has some written down twice, or this proves nothing"


def assert_held(process: Process, misfits: Misfits) -> None:
    """The lake has the rows that fit, and all their versions where it keeps them."""
    url, fine = misfits.database.url, "at < 'infinity' AND length(body) < 65536"
    process.assert_equal("items", source_rows(url, "items", sid="eu", where=fine))
    now = source_rows(url, "versions", sid="eu", where=fine)
    oracle.assert_equal(now, open_versions(process, now.columns), key=("id",))
    for name in WHOLE:
        assert tags_of(process, name) == collections.Counter(misfits.fits[name]), name
    assert shares(process) == shares_at_source(misfits.database, "n <> 0")
    for target, kind in (("of_a", "a"), ("of_b", "b")):
        process.assert_equal(target, source_rows(url, "events", sid="eu", where=f"kind = '{kind}'"))


def open_versions(process: Process, columns: tuple[str, ...]) -> oracle.Rows:
    found = process.rows("versions")
    end = found.columns.index("kvsz_end")
    now = collections.Counter({row: count for row, count in found.rows.items() if row[end] == OPEN})
    return dataclasses.replace(found, rows=now).select(columns)


def tags_of(process: Process, target: str) -> collections.Counter[str]:
    tags: collections.Counter[str] = collections.Counter()
    for (tag,), count in process.rows(target).select(("tag",)).rows.items():
        tags[tag] += count
    return tags


def shares(process: Process) -> list[tuple[Any, ...]]:
    return sorted(process.rows("shares").select(("id", "tag", "n", "share")).rows.elements())


def shares_at_source(database: Database, where: str) -> list[tuple[Any, ...]]:
    rows = database.execute(f"SELECT id, tag, n, 100 / nullif(n, 0) FROM shares WHERE {where} ORDER BY id")
    return sorted(rows)


def killed_at(process: Process, failpoint: str) -> None:
    process.start(failpoints=failpoint)
    process.wait_killed()
    assert process.found("failpoint"), process.report()


@pytest.fixture
def process(database: Database, new_process: Callable[..., Process]) -> Process:
    return new_process(
        group({"eu": database}, rejecting(TABLES)), lake={"about": "_kuvasz"}, pipeline={"max_row_bytes": "64kB"}
    )


def killed_while_it_rejects(process: Process, misfits: Misfits, *points: str) -> None:
    """Kill it in the copy, then at points of the stream, and let it come to the end."""
    misfits.create()
    killed_at(process, f"{REJECTING[0]}:kill:2")
    copied = len(process.found("copied"))
    process.start(failpoints=f"{REJECTING[0]}:kill:15")
    process.wait_event("copied", len(UNFIT) + 1 - copied)
    with misfits.load():
        process.wait_killed()
        for point in points:
            killed_at(process, point)
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_row_that_does_not_fit_is_written_down_over_kills_and_comes_back_when_the_map_is_mended(
    database: Database, process: Process
) -> None:
    misfits = Misfits(database)
    killed_while_it_rejects(process, misfits, "after_commit:kill:9")
    assert_held(process, misfits)
    assert_told(process, misfits)

    process.write_map(group({"eu": database}, rejecting(MENDED)))
    process.start()
    process.wait_event("copied", 1, table="shop.shares")
    process.wait_event("copied", 1, table="shop.others")
    last = 10 * misfits.batches
    for name in TRIED:
        # Of those that were rejected one is changed before it is tried again, and one is deleted.
        database.execute(f"UPDATE {name} SET tag = 'later' WHERE id = {last - 9}")
        database.execute(f"DELETE FROM {name} WHERE id = {last - 19}")
    process.wait_confirmed(database)
    process.terminate()
    for name in TRIED:
        tried = process.run("rejects", "--retry", "--table", name)
        assert tried.returncode == 0, tried.stdout + tried.stderr
    columns = ("id", "tag", "n", "kind", "body", "sid")
    for name in TRIED:
        found = open_versions(process, (*columns, "at")) if name == "versions" else process.rows(name)
        now = source_rows(database.url, name, columns[:-1], sid="eu")
        oracle.assert_equal(now, found.select(columns), key=("id",))
        assert len(now) > len(source_rows(database.url, name, where="at < 'infinity'"))
        unfit = {row for row in found.select(("id", "at")).rows if row[1] is None}
        assert {id_ for id_, _ in unfit} == {
            id_ for (id_,) in database.execute(f"SELECT id FROM {name} WHERE at = 'infinity'")
        }
    assert shares(process) == shares_at_source(database, "true")
    for target, where in (("of_a", "kind = 'a'"), ("of_b", "kind = 'b'"), ("others", "kind = 'c'")):
        process.assert_equal(target, source_rows(database.url, "events", sid="eu", where=where))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_every_point_while_it_rejects(database: Database, process: Process) -> None:
    misfits = Misfits(database)
    streaming = [point for point in KILLS if point.partition(":")[0] not in COPYING]
    killed_while_it_rejects(process, misfits, *streaming)
    assert_held(process, misfits)
    assert_told(process, misfits)
