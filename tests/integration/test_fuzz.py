"""Random programs against every table type: the lake holds what the plain model says, whatever was drawn.

The suite runs a few seeds, always the same. `make fuzz MINUTES=10` draws new ones for as long, `make fuzz SEED=7`
runs one again; each failure prints its seed, the map's tables and the program as SQL.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import CutRefused
from kuvasz.modes.row_rules import pseudonym
from kuvasz.worker.cuts import LakeCut
from tests.support import model, oracle
from tests.support.lake import LakeFolder, Pipeline
from tests.support.observer import Observer
from tests.support.postgres import Database, create_database, drop_database
from tests.support.programs import PARENT, TABLE, Plan, Target, Writer, identify, plan
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SECRET = "a secret of these tests alone"
#: Between them they draw every table type, with and without a key, every option and every way to go on.
SEEDS = (8, 13, 26, 34, 39, 122)
_FACTS = {
    "kvsz_start",
    "kvsz_end",
    "kvsz_deleted",
    "_op",
    "_lsn",
    "_ordinal",
    "_xid",
    "_commit_ts",
    "_old_key",
    "sid",
}


@pytest.mark.skipif("FUZZ" not in os.environ, reason="make fuzz")
@pytest.mark.timeout(0)
def test_new_programs_for_some_minutes(postgres18: EmbeddedPostgres, spark_session: object) -> None:
    wanted = os.environ["FUZZ"]
    if wanted.startswith("seed="):
        for seed in wanted.removeprefix("seed=").split(","):
            run(postgres18, spark_session, int(seed))
        return
    end = time.monotonic() + float(wanted) * 60
    tried, failed = 0, []
    while time.monotonic() < end:
        seed = random.SystemRandom().randint(1, 10**6)
        tried += 1
        try:
            run(postgres18, spark_session, seed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (the next one may fail otherwise)
            failed.append(seed)
            traceback.print_exception(error, limit=-3)
            print(flush=True)
        print(f"fuzz: {tried} programs, failed: {failed}", flush=True)
    assert not failed, f"make fuzz SEED={','.join(map(str, failed))}"


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_that_are_the_same_each_time(postgres18: EmbeddedPostgres, spark_session: object, seed: int) -> None:
    run(postgres18, spark_session, seed)


def run(server: EmbeddedPostgres, session: object, seed: int) -> None:
    """Run a seed's program; a failure carries all that is needed to see it again."""
    drawn = plan(seed)
    database = create_database(server)
    folder = LakeFolder(session, format_version=drawn.format_version)
    example = Example(database, folder, drawn)
    warnings = Warnings()
    logging.getLogger("kuvasz").addHandler(warnings)
    try:
        example.run()
    except BaseException as error:
        told = [f"make fuzz SEED={seed}", repr(drawn), *example.writer.log, *warnings.found]
        error.add_note("\n".join(told))
        raise
    finally:
        logging.getLogger("kuvasz").removeHandler(warnings)
        drop_database(database)
        folder.remove()


class Warnings(logging.Handler):
    """What kuvasz warned of meanwhile, each once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: str(value) for name, value in vars(record).items() if name not in _RECORD}
        self.found.setdefault(f"{record.getMessage()} {fields}")


_RECORD = vars(logging.makeLogRecord({})).keys()


class Example:
    """One program against one lake."""

    def __init__(self, database: Database, folder: LakeFolder, drawn: Plan) -> None:
        self.database = database
        self.folder = folder
        self.plan = drawn
        defaults: dict[str, Any] = {}
        self.writer = Writer(drawn, defaults)
        url = {"url": database.url} | ({"sid": drawn.sid} if drawn.sid else {})
        # A group for each target, so that all follow one table.
        groups = [
            {
                "database": target.type, "urls": [url], "tables": {TABLE: target.entry},
            }
            for target in {target.type: target for target in drawn.targets}.values()
        ]  # fmt: skip
        if drawn.has_parent:
            groups[0]["tables"][PARENT] = None
        self.config = folder.config(
            groups, drawn.maintenance, memory="1MB", transaction_spill_bytes=drawn.spill_bytes, mask_secret=SECRET
        )
        with database.connect() as connection:
            self.writer.define(connection)
        self.observer = Observer(
            database, {TABLE: tuple(drawn.key)}, identify=identify, shows_defaults=drawn.format_version == 3
        )
        self.observer.defaults = defaults
        self.copied: dict[str, int] = {}
        self.left = list(drawn.phases)
        self.cuts: dict[str, dict[str, list[str]]] = {}  #: tag -> target -> its rows when it was made

    def run(self) -> None:
        """Run all phases; kuvasz runs on from one to the next unless a phase wants it stopped."""
        with self.database.connect() as connection:
            self.writer.fill(connection)
        left = self.left
        while True:
            with Pipeline(self.config, self.folder) as pipeline:
                pipeline.wait_streaming()
                for target in self.plan.targets if not self.copied else ():
                    (position,) = pipeline.app.lake.positions(f"shop.{target.name}").values()
                    self.copied[target.name] = position.lsn
                self._check(pipeline)
                while left and left[0][0] == "running":
                    self._phase(*left.pop(0))
                    self._check(pipeline)
            if not left:
                return
            way, count = left.pop(0)
            self._phase(way, count)
            if way == "lost":
                shutil.rmtree(self.folder.folder / "state")

    def _phase(self, way: str, count: int) -> None:
        self.writer.log.append(f"-- kuvasz is {way}")
        with self.database.connect() as connection:
            for _ in range(count):
                self.writer.transaction(connection)

    def _check(self, pipeline: Pipeline) -> None:
        pipeline.wait_applied(self.database)
        for target in self.plan.targets:
            self._compare(target)
        if self.plan.has_parent:
            pipeline.assert_equal(PARENT, oracle.source_rows(self.database.url, PARENT, sid=self.plan.sid))
        if self.plan.cuts[len(self.plan.phases) - len(self.left)]:
            self._cut(pipeline)
        for tag, shown in self.cuts.items():
            assert {name: self._at(name, tag) for name in shown} == shown, f"the cut {tag} shows something else now"

    def _cut(self, pipeline: Pipeline) -> None:
        """Make a cut of what the lake shows, and remember that."""
        sources, name = [sync.source.name for sync in pipeline.app.sources], f"number-{len(self.cuts)}"
        made = wait_until_made(lambda: pipeline.call(pipeline.app.cuts.make(name, sources, 3600.0)))
        self.writer.log.append(f"-- {made.tag}")
        self.cuts[made.tag] = {target.name: self._at(target.name, made.tag) for target in self.plan.targets}
        now = {target.name: self._at(target.name, "main") for target in self.plan.targets}
        assert self.cuts[made.tag] == now, "nothing was written meanwhile"

    def _at(self, name: str, ref: str) -> list[str]:
        """Return what a table shows by the name of a snapshot."""
        table = oracle.open_table(self.folder.pyiceberg, f"shop.{name}", catalog=self.folder.catalog)
        if (snapshot := table.metadata.refs.get(ref)) is None:  # nothing was ever written
            return []
        return sorted(map(str, table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()))

    def _compare(self, target: Target) -> None:
        lake, name = self.folder, f"shop.{target.name}"
        found = {
            "pyiceberg": oracle.lake_rows_pyiceberg(lake.pyiceberg, name, catalog=lake.catalog),
            "spark": oracle.lake_rows_spark(lake.session, f"{lake.catalog}.{name}"),
            "duckdb": oracle.lake_rows_duckdb(lake.pyiceberg, name, catalog=lake.catalog),
        }
        rows = self._source(target) if target.type == "clone" else self._model(target)
        live = {identify(column) for column in self._live()}
        seen = self._seen()
        if target.is_soft:
            found = {reader: self._living(one) for reader, one in found.items()}
        for reader, one in found.items():
            # Of a clone the columns of now, else all that rows were seen with.
            known = {*live, "twice"} if target.type == "clone" else {*seen, "twice"}
            here = [column for column in one.columns if column in _FACTS or identify(column) in known]
            if "set" not in target.options:
                # What was added behind the last row is not known before the next one.
                lake_columns = {identify(column) for column in one.columns}
                assert live & seen <= lake_columns, f"{target.name}, {reader}: {one.columns}"
            names = [column if column in _FACTS else identify(column) for column in here]
            assert len(set(names)) == len(names), one.columns
            chosen = one.select(here).rows.elements()
            lake_rows = self._relaxed(target, [dict(zip(names, row, strict=True)) for row in chosen])
            expected = self._relaxed(target, [{column: row.get(column) for column in names} for row in rows])
            try:
                oracle.assert_equal(_rows(names, expected), _rows(names, lake_rows))
            except AssertionError as error:
                error.add_note(f"{target.name} as {reader} reads it")
                raise

    def _living(self, rows: oracle.Rows) -> oracle.Rows:
        """Return the rows of a table that are not deleted; of each key there is one row, dead or alive."""
        place = rows.columns.index("_deleted_at")
        keys = [number for number, column in enumerate(rows.columns) if identify(column) in self.plan.key]
        counted = Counter(tuple(row[number] for number in keys) for row in rows.rows.elements())
        assert set(counted.values()) <= {1}, f"keys with several rows: {counted.most_common(3)}"
        living = Counter({row: count for row, count in rows.rows.items() if row[place] is None})
        return oracle.Rows(columns=rows.columns, rows=living)

    def _live(self) -> tuple[str, ...]:
        with self.database.connect() as connection:
            return tuple(column.name for column in connection.execute(f"SELECT * FROM {TABLE} LIMIT 0").description)

    def _seen(self) -> set[str]:
        return {
            column
            for _, one in self.observer.transactions[TABLE]
            for event in one.events
            for row in (event.old, event.new)
            if row is not None
            for column in row
        }

    # What there must be

    def _source(self, target: Target) -> list[dict]:
        found = oracle.source_rows(self.database.url, TABLE)
        names = [identify(column) for column in found.columns]
        rows = [dict(zip(names, row, strict=True)) for row in found.rows.elements()]
        return self._mapped(target, [row for row in rows if target.has(row["n"])])

    def _model(self, target: Target) -> list[dict]:
        copied, _, after = self.observer.split(TABLE, self.copied[target.name])
        copied = [row for row in copied if target.has(row["n"])]
        key, is_full = tuple(self.plan.key), self.plan.identity == "FULL"
        if target.is_sifted:
            after = model.filtered(after, lambda row: target.has(row["n"]), is_full=is_full)
        if target.type == "append":
            rows = model.append(copied, after)
        elif target.type == "history":
            rows = model.history(copied, after, key)
        else:
            rows = model.changelog(
                copied, after, key, columns=(), copied_lsn=self.copied[target.name], is_full=is_full
            )
        return self._mapped(target, rows)

    def _mapped(self, target: Target, rows: Iterable[Mapping[str, Any]]) -> list[dict]:
        made = [dict(row) | ({"sid": self.plan.sid} if self.plan.sid else {}) for row in rows]
        for row in made:
            row["twice"] = None if row.get("n") is None else row["n"] * 2
            if "mask" in target.options and row.get("k0") is not None:
                row["k0"] = pseudonym(row["k0"], SECRET.encode())
            if "mask" in target.options and row.get("_old_key") is not None:
                row["_old_key"] = {"k0": pseudonym(row["_old_key"]["k0"], SECRET.encode())}
        return made

    def _relaxed(self, target: Target, rows: list[dict]) -> list[dict]:
        """Take out what is not promised: what is in a row of nothing, and a default that a rewrite hid."""
        for row in rows:
            if isinstance(row.get("_old_key"), dict):
                row["_old_key"] = tuple(sorted(row["_old_key"].items()))
            is_bare = row.get("_op") == "T" or (row.get("_op") == "D" and self.plan.identity != "FULL")
            for name in row:
                if name in _FACTS or name in self.plan.key:
                    continue
                hides = target.type != "clone" and self.writer.has_rewritten
                if is_bare or (hides and row[name] == self.writer.defaults.get(name, ...)):
                    row[name] = None
        return rows


def wait_until_made(make: Callable[[], LakeCut]) -> LakeCut:
    """Make a cut, however often it is refused because a source is being read again."""
    made: list[LakeCut] = []

    def is_made() -> bool:
        try:
            made.append(make())
        except CutRefused as error:
            if "is being read again" not in error.message:
                raise
        return bool(made)

    wait_until(is_made, "a cut is made")
    return made[0]


def _rows(names: list[str], rows: list[dict]) -> oracle.Rows:
    return oracle.Rows(columns=tuple(names), rows=Counter(tuple(row[name] for name in names) for row in rows))
