"""Two loaded sources and a kuvasz that is killed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process
from tests.support.replay import Replay, lake_text


class Scene:
    """Two loaded sources, their replays, and kuvasz."""

    def __init__(self, sources: dict[str, Database], process: Process) -> None:
        self.sources = sources
        self.process = process
        self.replays = {sid: Replay(database, *TABLES) for sid, database in sources.items()}
        self.first_confirmed: dict[str, int] = {}
        for database in sources.values():
            fill_tables(database)

    @contextlib.contextmanager
    def load(self, seed: int) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for number, database in enumerate(self.sources.values()):
                stack.enter_context(Load(database, seed + number))
            yield

    def confirmed(self) -> dict[str, int]:
        """What each source was told is safe; call it before what is left of a killed kuvasz can still commit."""
        found = {}
        for sid, database in self.sources.items():
            rows = database.execute(
                "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots"
                " WHERE database = current_database() AND slot_name LIKE 'kuvasz_shop%' AND NOT temporary"
            )
            if rows:
                found[sid] = int(rows[0][0])
                self.first_confirmed.setdefault(sid, found[sid])
        return found

    def assert_nothing_lost(self, confirmed: dict[str, int]) -> None:
        """Every transaction that ended at or before what was confirmed is in every table, and none is there twice.

        A table holds its source up to its position. Beyond that, up to what is confirmed, there may be no
        transaction that touched it: replayed through the later of the two, the source looks as the lake does.
        """
        for sid, lsn in confirmed.items():
            replay = self.replays[sid]
            replay.read()
            for table, columns in TABLES.items():
                position = self.process.positions(table).get(f"shop_{sid}")
                if position is None:
                    assert lsn == self.first_confirmed[sid], f"confirmed to {sid} while {table} was not copied"
                    continue
                lake = lake_text(self.process.rows(table), columns, sid)
                source = replay.state(table, max(position.lsn, lsn), len(columns))
                assert lake == source, (
                    f"{table} of {sid} at {position.lsn:X}, confirmed {lsn:X}:"
                    f" missing {list((source - lake).items())[:5]}, too many {list((lake - source).items())[:5]}"
                )

    def kill(self) -> None:
        """SIGKILL now, and look."""
        helpers = self.process.helpers()
        self.process.begin_kill()
        self.process.wait()
        confirmed = self.confirmed()
        self.process.wait_helpers(helpers)
        self.assert_nothing_lost(confirmed)

    def killed_at(self, failpoint: str, *arguments: str) -> None:
        """Start, let a failpoint kill kuvasz, and look."""
        self.process.start(*arguments, failpoints=failpoint)
        self.process.wait_killed()
        assert self.process.found("failpoint"), self.process.report()
        self.assert_nothing_lost(self.confirmed())

    def finish(self) -> None:
        """Without load, catch up and compare with the sources themselves."""
        self.process.start("--until-caught-up")
        assert self.process.wait() == 0, self.process.report()
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            self.process.assert_equal(table, *rows, key=("sid", "id"))


@pytest.fixture
def two_sources(postgres18: EmbeddedPostgres, postgres16: EmbeddedPostgres) -> Iterator[dict[str, Database]]:
    made = {"eu": create_database(postgres18), "us": create_database(postgres16)}
    for database in made.values():
        create_tables(database)
    yield made
    for database in made.values():
        drop_database(database)
