"""Many tables with a random history each, and kuvasz, which follows, stands still, is stopped or dies meanwhile."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.evolve import column_notes
from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.failpoints import failing
from tests.support.histories import TABLES, Story, prepare
from tests.support.history_oracle import Lake
from tests.support.history_rules import RULES, SECRET
from tests.support.lake import LakeFolder, Pipeline
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

#: What happens around each part of a history: kuvasz follows, can write nothing, or is down.
ROUNDS = ("live", "down", "stuck", "down")

#: Of every so many groups of all table types, one is in both sources.
_SHARED = 3

#: Statements of a round after which kuvasz may die.
_STATEMENTS = 300

#: Has an installed kuvasz write nothing for a while.
_STUCK = ",".join(f"before_data_files:error:{number}" for number in range(1, 400))

#: How long a round waits for tables to settle: they need not.
_PATIENCE_S = 5

Key = tuple[str, str]  #: table, sid


class Batch:
    """Tables with a history each, in one or two sources, and kuvasz.

    Args:
        folder: The lake.
        databases: The sources by sid: every table is in the first one, some of every type in both.
        seed: Of all that happens.
        count: How many tables.
        deaths: How often kuvasz dies in each round in which it runs.
    """

    def __init__(
        self, folder: LakeFolder, databases: Mapping[str, Database], seed: str, count: int, deaths: int = 1
    ) -> None:
        self.folder, self.databases, self.seed = folder, databases, seed
        self.stopped: dict[Key, str] = {}
        self._chosen = random.Random(seed)  # noqa: S311
        self._sessions = {sid: psycopg.connect(one.url, autocommit=True) for sid, one in databases.items()}
        self._ends: dict[Key, int] = {}  #: LSN of its last row
        self._deaths = deaths
        self._due: list[int] = []  #: statements until kuvasz dies, the next one last
        self._kuvasz: Pipeline | None = None
        self.stories = dict(self._stories(count))
        self.config = folder.config(self._groups(), mask_secret=SECRET)

    def _stories(self, count: int) -> Iterator[tuple[Key, Story]]:
        for number in range(count):
            kind, place = TABLES[number % len(TABLES)], number // len(TABLES)
            rule = RULES[place // 2 % len(RULES)] if place % 2 else RULES[0]
            if kind == "bag" and rule.is_computed:  # which needs a key
                rule = RULES[1]
            name = f"h{number}"
            for sid in ("eu", "us") if place % _SHARED == 1 else ("eu",):
                seed = f"{self.seed} {name} {sid}"
                yield (name, sid), Story(name, kind, seed, self._sessions[sid], rule, self._pause)

    def _is_shared(self, name: str) -> bool:
        return (name, "us") in self.stories

    def _groups(self) -> list[dict[str, Any]]:
        names = [name for name, sid in self.stories if sid == "eu"]
        groups = [
            self._group("shop", ("eu",), [name for name in names if not self._is_shared(name)]),
            self._group("pair", ("eu", "us"), [name for name in names if self._is_shared(name)]),
        ]
        return [group for group in groups if group["tables"]]

    def _group(self, name: str, sids: tuple[str, ...], tables: list[str]) -> dict[str, Any]:
        stories = {one: self.stories[one, "eu"] for one in tables}
        return {
            "database": name,
            "urls": [{"url": self.databases[sid].url, "sid": sid} for sid in sids],
            "tables": {
                one: {"type": "clone" if story.kind == "bag" else story.kind, **story.rule.options}
                for one, story in stories.items()
            },
        }

    # What happens

    def run(self) -> None:
        """Have everything happen, then compare."""
        for session in self._sessions.values():
            prepare(session)
        for story in self.stories.values():
            story.create()
        for round_ in ROUNDS:
            self._due = []
            if round_ == "down":
                self._happen()
            else:
                self._round(is_stuck=round_ == "stuck")
        self._end()
        self.compare()

    def _round(self, *, is_stuck: bool) -> None:
        """Have things happen while kuvasz runs, and dies at times; a stuck one remembers looks, and writes no row."""
        self._start()
        self._wait_begun()
        self._due = self._deaths_of_a_round()
        with failing("before_data_files") if is_stuck else contextlib.nullcontext():
            self._happen()
        self._wait_settled(_PATIENCE_S)
        self._stop()

    def _deaths_of_a_round(self) -> list[int]:
        return sorted((self._chosen.randrange(_STATEMENTS) for _ in range(self._deaths)), reverse=True)

    def _start(self) -> None:
        self._kuvasz = Pipeline(self.config, self.folder)
        self._kuvasz.__enter__()

    def _stop(self) -> None:
        self._running().stop()
        self._kuvasz = None

    def _die_and_start(self) -> None:
        self._running().die()
        self._start()

    def _running(self) -> Pipeline:
        assert self._kuvasz is not None
        return self._kuvasz

    def _pause(self) -> None:
        """Have kuvasz die between two statements, if it is time to, and start again beside those that follow."""
        self._due = [one - 1 for one in self._due]
        if self._due and self._due[-1] < 0:
            self._due.pop()
            self._die_and_start()

    def _happen(self) -> None:
        due = [story for story in self.stories.values() for _ in range(2)]
        self._chosen.shuffle(due)
        for story in due:
            story.go(self._chosen.randint(1, 3))

    def _end(self) -> None:
        """Give every table a last row, behind which the lake has to be in the end."""
        self._start()
        self._wait_begun()
        for (name, sid), story in self.stories.items():
            self._ends[name, sid] = self._wal_end(sid)
            story.touch()
        self._wait_settled(600)
        self._stop()

    def _wal_end(self, sid: str) -> int:
        ((end,),) = self._sessions[sid].execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
        ).fetchall()  # fmt: skip
        return int(end)

    # Waiting

    def _wait_begun(self) -> None:
        wait_until(self._has_begun, "all sources stream", 300)

    def _has_begun(self) -> bool:
        pipeline = self._running()
        assert pipeline.error is None, repr(pipeline.error)
        return all(sync.reader is not None for sync in pipeline.app.sources)

    def _wait_settled(self, patience_s: float) -> None:
        """Wait until every table has its last row, or has stopped; before that, not for long."""
        end = time.monotonic() + patience_s
        asked: set[tuple[Key, str]] = set()
        while (late := self._late()) or self._retry(asked):
            if time.monotonic() > end:
                assert not self._ends, f"late: {late}; stopped: {self.stopped}; {self._running().errors()}"
                return
            time.sleep(0.1)

    def _late(self) -> list[str]:
        """Return the tables that neither have stopped nor have what they should."""
        pipeline = self._running()
        assert pipeline.error is None, repr(pipeline.error)
        states = pipeline.app.states.snapshot()
        keys = [(one.target.removeprefix("shop."), one.source.partition("_")[2]) for one in states]
        self.stopped = {key: str(one.error) for key, one in zip(keys, states, strict=True) if one.error}
        found = []
        for key, one in zip(keys, states, strict=True):
            position = pipeline.app.lake.positions(one.target).get(one.source)
            is_there = position is not None and position.lsn > self._ends.get(key, 0)
            if one.state is not State.ERROR and not (one.state is State.STREAMING and is_there):
                found.append(f"{one.source} {one.target}: {one.state}, {position}")
        return found

    def _retry(self, asked: set[tuple[Key, str]]) -> bool:
        """Agree to what hints offer, once each, where they are right; returns whether there was anything to do."""
        right = ((key, error) for key, error in self.stopped.items() if self.stories[key].meanings.are_as(error))
        due = set(right) - asked
        for (name, sid), _ in due:
            self._running().tell("retry", f"shop.{name}", self._source(name, sid))
        asked |= due
        return bool(due)

    def _source(self, name: str, sid: str) -> str:
        return f"{'pair' if self._is_shared(name) else 'shop'}_{sid}"

    # Comparing

    def compare(self) -> None:
        """Compare every table that follows with its source, and look for strange values in all."""
        for (name, sid), error in self.stopped.items():
            story = self.stories[name, sid]
            print(f"stopped: {name} of {sid} ({story.kind}, {dict(story.rule.options)}): {error}")
        wrong = [f"{key}: an error without a hint: {error}" for key, error in self.stopped.items()
                 if "hint:" not in error]  # fmt: skip
        for name in sorted({name for name, _ in self.stories}):
            wrong += self._compare(name)
        assert not wrong, f"seed {self.seed}\n" + "\n".join(wrong)

    def _compare(self, name: str) -> list[str]:
        table = oracle.open_table(self.folder.pyiceberg, f"shop.{name}", catalog=self.folder.catalog)
        names = {field.field_id: field.name for field in table.schema().fields}
        remembered = column_notes.parse(table.properties, name)
        rows = table.scan().to_arrow()
        wrong: list[str] = []
        for sid in ("eu", "us") if self._is_shared(name) else ("eu",):
            seen = remembered[self._source(name, sid)].columns
            fields = {number: names[one.field] for number, one in seen.items() if one.field in names}
            wrong += self._problems(name, sid, rows.filter(pc.equal(rows["sid"], sid)), fields)
        return wrong

    def _problems(self, name: str, sid: str, rows: pa.Table, fields: Mapping[int, str]) -> Sequence[str]:
        story, is_whole = self.stories[name, sid], (name, sid) not in self.stopped
        mine, is_shared = rows.to_pylist(), self._is_shared(name)
        found = Lake(story, mine, fields, is_shared=is_shared).problems(is_whole=is_whole)
        if is_whole and not found and story.kind in {"clone", "bag"} and story.rule.is_plain and not is_shared:
            found = self._differences(name, sid, rows)
        if not found:
            return ()
        held = sorted(mine, key=lambda row: row["tag"] or 0)  # a DELETE tells none
        head = f"{name} ({story.kind}, {sid}, {dict(story.rule.options)}): "
        return [*(head + what for what in found[:3]), "; ".join(story.told) + json.dumps(held, default=str)]

    def _differences(self, name: str, sid: str, rows: pa.Table) -> list[str]:
        """Compare a table that shows what its source shows with PostgreSQL itself."""
        source = oracle.source_rows(self.databases[sid].url, name, sid=sid)
        missing = set(source.columns) - set(rows.column_names)
        if missing:
            return [f"columns {sorted(missing)} are missing"]
        lake = oracle.rows_of_arrow(rows.select(list(source.columns)))
        return [] if lake.rows == source.rows else [oracle.difference(source, lake, key=("id",))]


class KilledBatch(Batch):
    """The same with the installed command, which SIGKILL ends; only the last round runs in this process.

    Args:
        process: Of the same lake, map and state.
        folder: See `Batch`.
        databases: See `Batch`.
        seed: See `Batch`.
        count: See `Batch`.
        deaths: See `Batch`.
    """

    def __init__(self, process: Process, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._process = process
        process.map.write_text((self.folder.folder / "map.yaml").read_text())

    def _round(self, *, is_stuck: bool) -> None:
        self._process.start(failpoints=_STUCK if is_stuck else "")
        self._process.wait_event("reader.streaming", sum(len(group["urls"]) for group in self._groups()))
        self._due = self._deaths_of_a_round()
        self._happen()
        self._kill()

    def _die_and_start(self) -> None:
        self._kill()
        self._process.start()

    def _kill(self) -> None:
        """Kill it, with what it began to commit."""
        helpers = self._process.helpers()
        self._process.begin_kill()
        self._process.wait()
        self._process.wait_helpers(helpers)


__all__ = ["Batch", "KilledBatch"]
