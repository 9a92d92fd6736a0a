"""What is parked of masked tables at a coordinator: its values are nowhere to be read, and none is lost."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.lake.iceberg.engine import spool_folder
from tests.support.kept_files import KeptFiles, words_at
from tests.support.lake import group
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

#: Both tables change alike, and one of them is parked for a while.
TABLES = ("parked", "never")
EXCLUDED, REDACTED, PSEUDONYM, DEFAULT = (f"Zq7{word}x9V" for word in ("Excluded", "Redacted", "Hmac", "Default"))
WORDS = (EXCLUDED, REDACTED, PSEUDONYM, DEFAULT)
ENTRY = {"exclude": ["secret"], "mask": {"id": "hmac", "card": "redact", "mail": "hmac", "late": "hmac"}}


def write(database: Database, *statements: str) -> None:
    """Change both tables alike, each statement in a transaction of its own."""
    for statement in statements:
        with database.connect() as session:
            for table in TABLES:
                session.execute(statement.format(table))  # type: ignore[arg-type]


def fill(database: Database) -> None:
    write(
        database,
        "CREATE TABLE {} (id text PRIMARY KEY, secret text, card text, mail text, big text, n int)",
        "ALTER TABLE {} ALTER COLUMN big SET STORAGE EXTERNAL, ALTER COLUMN mail SET STORAGE EXTERNAL",
    )
    insert(database, 0)
    write(database, f"ALTER TABLE {{}} ADD COLUMN late text DEFAULT '{DEFAULT}'")


def insert(database: Database, number: int) -> None:
    write(
        database,
        "INSERT INTO {} (id, secret, card, mail, big, n)"
        f" SELECT '{PSEUDONYM}{number}_' || i, '{EXCLUDED}', '{REDACTED}' || i,"
        f" repeat('{PSEUDONYM}', 300) || i, repeat('b', 3000), i FROM generate_series(1, 20) i",
    )


def change(database: Database, number: int) -> None:
    insert(database, number)
    write(
        database,
        f"UPDATE {{}} SET n = n + {number} WHERE id LIKE '%1'",  # large values are not sent
        f"UPDATE {{}} SET mail = mail || '{PSEUDONYM}', secret = secret || 'u', card = '{REDACTED}u' WHERE n % 3 = 0",
        f"UPDATE {{}} SET id = id || '_{number}' WHERE n = 4",
        "DELETE FROM {} WHERE n = 7",
    )


class Looks:
    """Everything that two processes leave, and what is there for a moment."""

    def __init__(self, stack: ExitStack, coordinator: Database, *processes: Process) -> None:
        self._coordinator = coordinator
        self._folders = [process.folder for process in processes]
        spools = [Path(spool_folder(load(process.map, {}).config)) for process in processes]
        kept = [*spools, *(process.folder / "state" for process in processes)]
        self._kept = stack.enter_context(KeptFiles(*kept))

    def found(self) -> dict[str, set[str]]:
        """Which words are where: folders have state, lake, catalog, log and Spark's events."""
        texts = {
            "folders": {word for folder in self._folders for word in words_at(folder, *WORDS)},
            "for a moment": self._kept.words(*WORDS),
            "coordinator": self._in_coordinator(),
            "compressed": {word for folder in self._folders for word in _compressed(folder)},
        }
        return {where: words for where, words in texts.items() if words}

    def _in_coordinator(self) -> set[str]:
        tables = self._coordinator.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kuvasz'")
        assert tables
        queries = [f"SELECT t::text FROM kuvasz.{table} t" for (table,) in tables]
        texts = [str(text) for query in queries for (text,) in self._coordinator.execute(query)]
        assert any("parked" in text for text in texts)
        return {word for word in WORDS if any(word in text or word.encode().hex() in text for text in texts)}


def _compressed(folder: Path) -> set[str]:
    """Which words are in metadata and logs that are compressed."""
    found = set()
    for file in folder.rglob("*.gz*"):
        with suppress(OSError, EOFError, zlib.error):
            found |= {word for word in WORDS if word.encode() in gzip.decompress(file.read_bytes())}
    return found


class Cluster:
    """Two processes with one map; Spark tells its events of what it does."""

    def __init__(self, source: Database, coordinator: Database, new_process: Callable[..., Process]) -> None:
        self.source = source
        options = {"mask_secret": "a secret of sixteen characters", "transaction_spill_bytes": "64kB"}
        maps = group({"eu": source}, dict.fromkeys(TABLES, ENTRY))
        given = {
            "pipeline": options, "cluster": {"coordinator": coordinator.url, "lease": "8s"},
            "lake": {"about": "_kuvasz"},
        }  # fmt: skip
        self.first = new_process(maps, **given)
        self.second = new_process(maps, **given, lake_of=self.first)
        self.spark_events = self.first.folder / "events"
        self.spark_events.mkdir()

    def start(self, process: Process) -> None:
        conf = {
            "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{self.spark_events}",
        }  # fmt: skip
        process.start(environment={"KUVASZ_SPARK__CONF": json.dumps(conf)})

    def tell(self, verb: str) -> None:
        """Have a note left while nobody runs."""
        told = self.first.run(verb, "--table", "parked")
        assert told.returncode == 0, told.stderr

    def wait_parked(self, process: Process, size: int) -> None:
        process.wait_until(lambda: sum(log.stat().st_size for log in process.parked()) > size, f"{size} are parked")

    def said(self) -> set[str]:
        """Which words are in what the processes told."""
        said = "".join(json.dumps(one.events) + "\n".join(one.output) for one in (self.first, self.second))
        return {word for word in WORDS if word in said}


def test_masked_values_are_nowhere_and_the_rows_are_those_of_a_table_that_was_never_parked(
    database: Database, coordinator: Database, new_process: Callable[..., Process]
) -> None:
    fill(database)
    cluster = Cluster(database, coordinator, new_process)
    first, second = cluster.first, cluster.second
    with ExitStack() as stack:
        looks = Looks(stack, coordinator, first, second)
        cluster.start(first)
        first.wait_event("copied", 2)
        change(database, 1)
        first.wait_confirmed(database)
        first.terminate()
        cluster.tell("pause")
        cluster.start(first)
        first.wait_event("lease_taken")
        cluster.start(second)
        second.wait_event("standing_by")
        change(database, 2)
        cluster.wait_parked(first, 20_000)
        assert (looks.found(), cluster.said()) == ({}, set())
        first.kill()
        second.wait_event("lease_taken", was_killed=True)
        change(database, 3)
        write(
            database,
            "UPDATE {} SET late = NULL WHERE n = 5",
            "ALTER TABLE {} RENAME COLUMN n TO m",
            f"UPDATE {{}} SET late = '{DEFAULT}2', m = 8 WHERE m = 8",
            "ALTER TABLE {} RENAME COLUMN m TO n",
        )
        cluster.wait_parked(second, 40_000)
        assert (looks.found(), cluster.said()) == ({}, set())
        second.terminate()
        cluster.tell("resume")
        cluster.start(second)
        second.wait_event("lease_taken")
        change(database, 4)
        second.wait_confirmed(database)
        assert not second.found("table_failed"), second.report()
        assert not second.found("copied"), "nothing is copied again"
        rows = [sorted(map(repr, second.rows(table).rows.elements())) for table in TABLES]
        assert rows[0] == rows[1]
        assert [(len(rows[0]),)] == database.execute("SELECT count(*)::int FROM parked")
        assert list(cluster.spark_events.iterdir())
        assert (looks.found(), cluster.said()) == ({}, set())
        second.terminate()
