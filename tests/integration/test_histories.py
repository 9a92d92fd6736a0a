"""Many random histories of tables at once, over stops and commits that fail: values are never under a wrong column.

What cannot be proved is copied again, or stops its table with a hint; a table that follows has all that its source
has. Many tables share one pipeline, so a history costs about a second. Fifty are the same each time; as many more,
and then `HISTORIES` others, are tried with the slow tests. As many are in `unit/sync/watch/test_schema_watch.py`,
without a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest

from kuvasz import failpoints
from kuvasz.evolve import known
from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.histories import KINDS, Story, problems
from tests.support.lake import LakeFolder, Pipeline
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

HISTORIES = int(os.environ.get("HISTORIES", "2000"))
#: Tables of one pipeline.
BATCH = 50

#: Begins an error of PostgreSQL's, after rewrites of a table that a savepoint takes back; nothing comes behind it.
_UNDECODABLE = "unexpected duplicate for tablespace"

#: What happens around each part of a history: kuvasz follows, is down, or can commit nothing until it stops.
ROUNDS = ("live", "down", "live", "stuck", "down")


class Batch:
    """Tables with a history each, in one or two sources, and kuvasz.

    Args:
        folder: The lake.
        databases: The sources by sid: every table is in the first one, every fifth clone in both.
        seed: Of all that happens.
        count: How many tables.
    """

    def __init__(self, folder: LakeFolder, databases: Mapping[str, Database], seed: str, count: int) -> None:
        self.folder, self.databases, self.seed = folder, databases, seed
        self.chosen = random.Random(seed)  # noqa: S311
        self.sessions = {sid: psycopg.connect(one.url, autocommit=True) for sid, one in databases.items()}
        self.stories: dict[str, Story] = {}
        self.others: dict[str, Story] = {}
        self.stopped: dict[str, str] = {}
        self.ends: dict[tuple[str, str], int] = {}  #: table, sid -> LSN of its last row
        for number in range(count):
            kind, name = KINDS[number % len(KINDS)], f"h{number}"
            self.stories[name] = Story(name, kind, f"{seed} {name}", self.sessions["eu"])
            if kind == "clone" and number % 2:
                self.others[name] = Story(name, kind, f"{seed} {name} us", self.sessions["us"])
        self.config = folder.config(self._groups())

    def _groups(self) -> list[dict[str, Any]]:
        groups = [
            self._group("shop", ("eu",), [name for name in self.stories if name not in self.others]),
            self._group("pair", ("eu", "us"), list(self.others)),
        ]
        return [group for group in groups if group["tables"]]

    def _group(self, name: str, sids: tuple[str, ...], tables: list[str]) -> dict[str, Any]:
        kinds = {"bag": "clone"}
        return {
            "database": name,
            "urls": [{"url": self.databases[sid].url, "sid": sid} for sid in sids],
            "tables": {one: {"type": kinds.get(self.stories[one].kind, self.stories[one].kind)} for one in tables},
        }

    def run(self) -> None:
        """Have everything happen, then compare."""
        for story in (*self.stories.values(), *self.others.values()):
            story.create()
        for round_ in ("copy", *ROUNDS, "end"):
            if round_ == "down":
                self._happen()
                continue
            with Pipeline(self.config, self.folder) as pipeline, self._stuck(is_stuck=round_ == "stuck"):
                self._wait_begun(pipeline)
                if round_ in {"live", "stuck"}:
                    self._happen()
                if round_ == "end":
                    self._touch()
                if round_ != "stuck":
                    self._wait_settled(pipeline, 600 if round_ == "end" else 20)
                else:
                    time.sleep(1)  # whatever it has noted by then
        self.compare()

    def _happen(self) -> None:
        due = [story for story in (*self.stories.values(), *self.others.values()) for _ in range(2)]
        self.chosen.shuffle(due)
        for story in due:
            story.go(self.chosen.randint(1, 2))

    @contextlib.contextmanager
    def _stuck(self, *, is_stuck: bool) -> Iterator[None]:
        """Have no data file written: what is looked at is remembered, and no row."""
        before = failpoints._armed
        if is_stuck:
            failpoints._armed = failpoints._parse(",".join(f"before_data_files:error:{n}" for n in range(1, 400)))
        try:
            yield
        finally:
            failpoints._armed = before

    def _wait_begun(self, pipeline: Pipeline) -> None:
        wait_until(lambda: all(sync.reader is not None for sync in pipeline.app.sources), "all sources stream", 300)

    def _touch(self) -> None:
        """Give every table a last row, behind which the lake has to be in the end."""
        for sid, stories in (("eu", self.stories), ("us", self.others)):
            for name, story in stories.items():
                self.ends[name, sid] = self._wal_end(sid)
                story.touch()

    def _wal_end(self, sid: str) -> int:
        ((end,),) = self.sessions[sid].execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
        ).fetchall()  # fmt: skip
        return int(end)

    def _wait_settled(self, pipeline: Pipeline, patience_s: float) -> None:
        """Wait until every table has its last row, or has stopped; before that, not for long."""
        end = time.monotonic() + patience_s
        asked: set[str] = set()
        while (late := self._late(pipeline)) or self._retry(pipeline, asked):
            if any(_UNDECODABLE in error for error in pipeline.errors()):
                pytest.skip(f"the server cannot decode its own log: {pipeline.errors()}")
            if time.monotonic() > end:
                assert not self.ends, f"late: {late}; stopped: {self.stopped}"
                return
            time.sleep(0.1)

    def _late(self, pipeline: Pipeline) -> list[str]:
        """Return the tables that neither have stopped nor have what they should."""
        assert pipeline.error is None, pipeline.error
        states = pipeline.app.states.snapshot()
        self.stopped = {one.target: str(one.error) for one in states if one.error}
        found = []
        for one in states:
            name, sid = one.target.removeprefix("shop."), one.source.partition("_")[2]
            position = pipeline.app.lake.positions(one.target).get(one.source)
            is_there = position is not None and position.lsn > self.ends.get((name, sid), 0)
            if one.state is not State.ERROR and not (one.state is State.STREAMING and is_there):
                found.append(f"{one.source} {name}: {one.state}, {position}")
        return found

    def _retry(self, pipeline: Pipeline, asked: set[str]) -> bool:
        """Do what hints offer, once; returns whether there was anything to be done."""
        due = {target for target, error in self.stopped.items() if "takes them so" in error} - asked
        for target in due:
            pipeline.tell("retry", target, "shop_eu")
        asked |= due
        return bool(due)

    def compare(self) -> None:
        """Compare every table that follows with its source, and look for strange values in all."""
        wrong = []
        for target, error in self.stopped.items():
            print(f"stopped: {target} ({self.stories[target.removeprefix('shop.')].kind}): {error}")
        for name, story in self.stories.items():
            error = self.stopped.get(f"shop.{name}")
            if error is not None and "hint:" not in error:
                wrong.append(f"{name}: an error without a hint: {error}")
            table = oracle.open_table(self.folder.pyiceberg, f"shop.{name}", catalog=self.folder.catalog)
            rows = table.scan().to_arrow().to_pylist()
            names = {field.field_id: field.name for field in table.schema().fields}
            remembered = known.parse(table.properties, name)
            for sid, one in (("eu", story), ("us", self.others.get(name))):
                if one is None:
                    continue
                group = "pair" if name in self.others else "shop"
                seen = remembered[f"{group}_{sid}"].columns
                fields = {number: names[c.field] for number, c in seen.items() if c.field in names}
                mine = [row for row in rows if row["sid"] == sid]
                found = problems(one, mine, fields, is_whole=error is None, is_shared=name in self.others)
                wrong += [f"{name} ({one.kind}, {sid}): {what}" for what in found[:3]]
                if found:
                    held = sorted(mine, key=lambda row: row["tag"] or 0)  # a DELETE tells none
                    wrong.append("; ".join(one.told) + json.dumps(held, default=str))
        assert not wrong, f"seed {self.seed}\n" + "\n".join(wrong)


@pytest.fixture
def sources(postgres18: Any, postgres16: Any) -> Iterator[dict[str, Database]]:
    made = {"eu": create_database(postgres18), "us": create_database(postgres16)}
    yield made
    for database in made.values():
        drop_database(database)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", ["always the same", pytest.param("and another one", marks=pytest.mark.slow)])
def test_some_histories(sources: dict[str, Database], lake_folder: LakeFolder, seed: str) -> None:
    batch = Batch(lake_folder, sources, seed, BATCH)
    batch.run()
    assert len(batch.stopped) < BATCH / 2, batch.stopped


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_many_histories(sources: dict[str, Database], spark_session: object, first: int) -> None:
    seed = f"{first} {random.randrange(1 << 30)}"  # noqa: S311
    print(f"seed {seed}")
    folder = LakeFolder(spark_session, format_version=3 - first // BATCH % 2)
    Batch(folder, sources, seed, BATCH).run()
    folder.remove()
