"""A lake and a state folder of this version are run by the one before, and by this one again: docs/howto.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

from kuvasz import lsn
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.backup import backed_up, put_back
from tests.support.catalogs import in_a_file
from tests.support.lake import group
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.observer import Observer
from tests.support.oracle import assert_equal, source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process, confirmed, tell

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

TYPES = ("clone", "append", "history", "changelog")

#: Paused now and then, so that its changes are parked by one version and read by another.
STILL = "still"


class Turns:
    """A source whose tables are followed as each type, by one version and then by another.

    Args:
        database: The source.
        new_process: Makes the process.
        before: The environment of the version before.
    """

    def __init__(self, database: Database, new_process: Callable[..., Process], before: Mapping[str, str]) -> None:
        self.database, self.before = database, before
        create_tables(database)
        database.execute("CREATE TABLE still (id int PRIMARY KEY, n int, name text)")
        self.observer = Observer(
            database, dict.fromkeys((*TABLES, STILL), ("id",)), shows_defaults=True,
            identify=lambda name: "remark" if name == "note" else name,
        )  # fmt: skip
        self.observer.defaults["remark"] = None
        fill_tables(database, 600)
        database.execute("INSERT INTO still SELECT i, 0, 'still ' || i FROM generate_series(1, 300) i")
        self.process = new_process([self._group(kind) for kind in TYPES])
        self._copied: dict[tuple[str, str], int] = {}

    def _group(self, kind: str) -> dict[str, object]:
        tables = (*TABLES, STILL)
        return {
            "database": kind, "urls": [{"url": self.database.url}],
            "tables": {table: {"type": kind, "target": f"{kind}_{table}"} for table in tables},
        }  # fmt: skip

    def copy(self) -> None:
        """Have the version before make the lake."""
        self.process.start(environment=self.before)
        self.process.wait_event("copied", len(TYPES) * (len(TABLES) + 1))
        self._copied = {
            (event["source"], event["table"]): lsn.parse(event["lsn"]) for event in self.process.found("copied")
        }

    def run(self, environment: Mapping[str, str] | None = None) -> None:
        """Have a version follow for a while, beside changes of all kinds, and kill it in the middle."""
        self.process.start(environment=environment)
        self.process.wait_event("reader.streaming", len(TYPES))
        self.change()
        self.process.wait_event("committed", 20)
        wait_let_go(self.process, self.database)
        self.assert_no_copy()
        self.process.kill()

    def change(self) -> None:
        """Change what may be paused: also keys, and rows that come and go."""
        for statement in (
            "UPDATE still SET n = n + 1 WHERE id % 2 = 0",
            "DELETE FROM still WHERE id = (SELECT min(id) FROM still)",
            "UPDATE still SET id = id + 10000 WHERE id = (SELECT min(id) FROM still)",
            "INSERT INTO still SELECT max(id) + 1, 0, 'new' FROM still",
        ):
            self.database.execute(statement)

    def catch_up(self, environment: Mapping[str, str] | None = None) -> None:
        """Have a version bring all there is."""
        self.process.start("--until-caught-up", environment=environment)
        assert self.process.wait() == 0, self.process.report()
        self.assert_no_copy()

    def assert_no_copy(self) -> None:
        """What went through the stream was not copied, or compared, instead."""
        for event in ("copied", "repaired", "table_failed"):
            assert self.process.found(event) == [], self.process.report()

    def assert_equal(self) -> None:
        """Every version of every row is in the lake once."""
        for kind in TYPES:
            for table in (*TABLES, STILL):
                target = f"{kind}_{table}"
                expected = self.observer.expected(table, kind, self._copied[kind, f"shop.{target}"])
                self.process.assert_equal(target, expected, key=("id",))


def test_the_version_before_goes_on_and_this_one_after_it(
    database: Database, new_process: Callable[..., Process], version_before: Mapping[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Parked changes of one are gone on with, and read, by the other; both are killed under load."""
    turns = Turns(database, new_process, version_before)
    process = turns.process
    with Load(database, 7):
        turns.copy()
        process.kill()
        tell(process, "pause", "--table", STILL, capsys=capsys)
        turns.run()
        database.execute("ALTER TABLE items ADD note text")
        turns.run()
        assert len(process.parked()) == len(TYPES)
        turns.run(version_before)
        database.execute("ALTER TABLE items RENAME note TO remark")
        turns.run(version_before)
    tell(process, "resume", "--table", STILL, capsys=capsys)
    turns.catch_up(version_before)
    turns.assert_equal()
    tell(process, "pause", "--table", STILL, capsys=capsys)
    with Load(database, 8):
        turns.run()
    tell(process, "resume", "--table", STILL, capsys=capsys)
    turns.catch_up()
    turns.assert_equal()
    assert process.parked() == []


@in_a_file
def test_the_way_back_that_is_documented(
    database: Database, new_process: Callable[..., Process], version_before: Mapping[str, str]
) -> None:
    """State and catalog are put back, the version before mends what was written meanwhile, and this one goes on."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 500) i")
    databases = group({"eu": database}, {"items": None})
    process = new_process(databases)
    kept = [process.folder / "catalog.db", process.folder / "state"]

    def go_on(environment: Mapping[str, str] | None = None) -> None:
        process.start(environment=environment)
        process.wait_event("reader.streaming")
        for statement in (
            "UPDATE items SET n = n + 1 WHERE id % 2 = 0",
            "DELETE FROM items WHERE id = (SELECT min(id) FROM items)",
        ):
            database.execute(statement)
        process.wait_confirmed(database)
        process.terminate()
        process.assert_equal("items", source_rows(database.url, "items", sid="eu"))

    go_on(version_before)
    backed_up(kept, process.folder / "backup")
    go_on()
    put_back(kept, process.folder / "backup")
    assert process.start(environment=version_before).wait() == 5
    assert "`on_slot_lost: repair`" in process.found("source_stopped")[0]["error"]
    process.write_map([{**one, "on_slot_lost": "repair"} for one in databases])
    go_on(version_before)
    assert len(process.found("repaired")) == 1
    process.write_map(databases)
    go_on()
    assert process.found("copied") == process.found("repaired") == []


def test_sealed_logs_are_refused_and_wait_for_this_version(
    database: Database, new_process: Callable[..., Process], version_before: Mapping[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What CHANGELOG.md says of them: an option that is not known ends a start, and without it the table stops."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 500) i")
    databases = group({"eu": database}, {"items": None})
    process = new_process(databases, pipeline={"seal_secret": "a secret of this version"})
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    tell(process, "pause", "--table", "items", capsys=capsys)
    process.start()
    process.wait_event("reader.streaming")
    database.execute("UPDATE items SET n = n + 1")
    wait_let_go(process, database)
    process.terminate()
    tell(process, "resume", "--table", "items", capsys=capsys)
    whole, rows = process.map.read_text(), process.rows("items")
    assert process.start(environment=version_before).wait() == 2
    assert any("seal_secret" in str(line) for line in (*process.events, *process.output)), process.report()
    without = json.loads(whole)
    del without["pipeline"]["seal_secret"]
    process.map.write_text(json.dumps(without))
    process.start(environment=version_before)
    assert "kuvasz retry --table shop.items" in process.wait_event("table_failed", table="shop.items")["error"]
    process.begin_stop()
    assert process.wait() == 3, process.report()  # its one table is in error
    assert_equal(rows, process.rows("items"), key=("id",))
    process.map.write_text(whole)
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    assert process.found("copied") == []
    process.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def test_defaults_that_this_version_hides(
    database: Database, new_process: Callable[..., Process], version_before: Mapping[str, str]
) -> None:
    """The one before takes the note for another default: a clone is copied again, another type stays as it is."""
    database.execute("CREATE TABLE people (id int PRIMARY KEY, n int); INSERT INTO people VALUES (1, 1), (2, 2)")
    database.execute("ALTER TABLE people ADD late text DEFAULT 'hidden'")
    kinds = ("clone", "append")
    process = new_process(
        [
            {
                "database": kind, "urls": [{"url": database.url}],
                "tables": {"people": {"type": kind, "target": f"{kind}_people", "mask": {"late": "redact"}}},
            }
            for kind in kinds
        ]
    )  # fmt: skip
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    process.start(environment=version_before)
    process.wait_event("copied", table="shop.clone_people")
    database.execute("INSERT INTO people VALUES (3, 3, 'shown')")
    wait_let_go(process, database)
    process.terminate()
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    assert process.found("copied") == []
    for kind in kinds:
        rows = process.rows(f"{kind}_people")
        assert_equal(source_rows(database.url, "people", ("id", "n")), rows.select(("id", "n")))


def test_a_cluster_of_both_versions(
    two_sources: dict[str, Database], postgres18: EmbeddedPostgres, new_process: Callable[..., Process],
    version_before: Mapping[str, str], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Machine by machine, forth and back: each takes over from one of the other version, under load.

    Killed, if both take the map for the same, and else stopped in good order. What is paused is parked in the
    coordinator by one, and read by the other.
    """
    coordinator = create_database(postgres18)
    groups = group(two_sources, dict.fromkeys((*TABLES, STILL)))
    options = {"cluster": {"coordinator": coordinator.url, "lease": "8s"}}
    first = new_process(groups, **options)
    second = new_process(groups, **options, lake_of=first)
    databases = list(two_sources.values())
    for database in databases:
        fill_tables(database)
        database.execute("CREATE TABLE still (id int PRIMARY KEY, n int)")
        database.execute("INSERT INTO still SELECT i, 0 FROM generate_series(1, 300) i")
    first.start("--until-caught-up", environment=version_before)
    assert first.wait() == 0, first.report()
    tell(first, "pause", "--table", STILL, capsys=capsys)
    is_same_map = _digest(first, version_before) == _digest(second, None)
    with Load(databases[0], 11), Load(databases[1], 12):
        leader = _replicating(first, version_before)
        for process, environment in ((second, None), (first, version_before), (second, None)):
            process.start(environment=environment)
            process.wait_event("standing_by")
            for database in databases:
                database.execute("UPDATE still SET n = n + 1 WHERE id % 2 = 0")
                database.execute("DELETE FROM still WHERE id = (SELECT min(id) FROM still)")
            leader.wait_event("committed", len(leader.found("committed")) + 5)
            leader.kill() if is_same_map else leader.terminate()
            process.wait_event("lease_taken", was_killed=is_same_map)
            for database in databases:
                wait_let_go(process, database)
            assert process.found("copied") == process.found("table_failed") == [], process.report()
            leader = process
    leader.terminate()
    for process, environment in ((first, version_before), (second, None)):
        tell(process, "resume", "--table", STILL, capsys=capsys)
        for database in databases:
            database.execute("UPDATE still SET n = n + 10 WHERE id % 3 = 0")
        process.start("--until-caught-up", environment=environment)
        assert process.wait() == 0, process.report()
        assert process.found("copied") == [], process.report()
        for table in (*TABLES, STILL):
            rows = [source_rows(database.url, table, sid=sid) for sid, database in two_sources.items()]
            first.assert_equal(table, *rows, key=("sid", "id"))
    drop_database(coordinator)


def _digest(process: Process, environment: Mapping[str, str] | None) -> str:
    """Return what tells a process's map from others, by a version."""
    program = (
        "import sys; from pathlib import Path; from kuvasz.config import load;"
        " from kuvasz.verbs.cluster.standby import map_digest;"
        " print(map_digest(load.load(Path(sys.argv[1]), {}).config))"
    )
    command = [sys.executable, "-c", program, str(process.map)]
    whole = {**os.environ, **(environment or {})}
    return subprocess.run(command, env=whole, capture_output=True, text=True, check=True).stdout


def _replicating(process: Process, environment: Mapping[str, str]) -> Process:
    process.start(environment=environment)
    process.wait_event("lease_taken")
    process.wait_event("reader.streaming", 2)
    return process


def wait_let_go(process: Process, database: Database) -> None:
    """Wait until the source need not keep anything of what it has now, whatever the lake has of it."""
    ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
    process.wait_until(lambda: confirmed(database, now), "the source lets go of its WAL")
