"""Random programs against every table type: the lake holds what the plain model says, whatever was drawn.

The suite runs a few seeds, always the same. `make fuzz MINUTES=10` draws new ones for as long, `make fuzz SEED=7`
runs one again; each failure prints its seed, the map's tables and the program as SQL.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import logging
import os
import random
import re
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import CutRefused
from kuvasz.modes.row_rules import pseudonym
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from kuvasz.verbs.lake import rejects
from kuvasz.verify.report import Report
from kuvasz.worker.cuts import LakeCut
from tests.support import model, oracle
from tests.support.lake import LakeFolder, Pipeline
from tests.support.observer import Observer
from tests.support.postgres import Database, create_database, drop_database
from tests.support.programs import (
    FAILS_IN,
    MISFIT,
    PARENT,
    ROW_LIMIT,
    TABLE,
    Plan,
    Target,
    Writer,
    identify,
    plan,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Behind every LSN.
FOREVER = 1 << 64
#: Of a row that is too large, values of more bytes are left out (docs/configuration.md, "Rows that do not fit").
CUT_BYTES = 8192
SECRET = "a secret of these tests alone"
#: Between them they draw every table type and both formats.
SEEDS = (39, 1430)
#: With the slow tests: between all of them every kind of option and every way to go on, routes, tables without a key,
#: expressions that fail, and rows that are too large.
MORE_SEEDS = (67, 122, 8, 13, 26, 34, 31, 163, 1358)
#: Documented stops (docs/schema-changes.md) of tables that are not copied again by themselves.
_FOR_A_PERSON = (
    "is not proved by what the catalog showed", "the source has rewritten its values, and rows are identified by it",
    "the table was rewritten and the column altered, and rows are identified by it",
    "which the stream does not carry",
)  # fmt: skip
_SET_ASIDE = re.compile(r"__old\d*$")
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
    tried, stopped, failed = 0, 0, []
    while time.monotonic() < end:
        seed = random.SystemRandom().randint(1, 10**6)
        tried += 1
        try:
            stopped += not run(postgres18, spark_session, seed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (the next one may fail otherwise)
            failed.append(seed)
            traceback.print_exception(error, limit=-3)
            print(flush=True)
        print(f"fuzz: {tried} programs, {stopped} stopped as documented, failed: {failed}", flush=True)
    assert not failed, f"make fuzz SEED={','.join(map(str, failed))}"


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE_SEEDS)])
def test_programs_that_are_the_same_each_time(postgres18: EmbeddedPostgres, spark_session: object, seed: int) -> None:
    # Where the machine is slow, kuvasz looks less often, and may have to stop as documented where it had seen enough.
    assert any(run(postgres18, spark_session, seed) for _ in range(2)), "no table stopped"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [39, 67, 122])
@pytest.mark.parametrize("catalog", ["postgres_catalog", "rest_catalog"])
def test_the_same_programs_behind_another_catalog(
    request: pytest.FixtureRequest, postgres18: EmbeddedPostgres, catalog: str, seed: int
) -> None:
    """SQLite has those of above; REST is a server of the specification's."""
    folder: LakeFolder = request.getfixturevalue(catalog)
    folder.format_version = plan(seed).format_version
    if not run(postgres18, folder.session, seed, folder):
        pytest.skip("a table stopped as documented: this machine is slow now")


def run(server: EmbeddedPostgres, session: object, seed: int, given: LakeFolder | None = None) -> bool:
    """Run a seed's program; a failure carries all that is needed to see it again.

    Args:
        server: Where its source is.
        session: Spark.
        seed: Of the program.
        given: The lake, of the program's format version; by default a new one, with its catalog in SQLite.

    Returns:
        Whether it came to its end; a table that stops as the docs say it may ends it before.
    """
    drawn = plan(seed)
    database = create_database(server)
    folder = given or LakeFolder(session, format_version=drawn.format_version)
    example = Example(database, folder, drawn)
    warnings = Warnings()
    logging.getLogger("kuvasz").addHandler(warnings)
    try:
        return example.run()
    except BaseException as error:
        told = [f"make fuzz SEED={seed}", repr(drawn), *example.writer.log, *warnings.found]
        error.add_note("\n".join(told))
        raise
    finally:
        logging.getLogger("kuvasz").removeHandler(warnings)
        drop_database(database)
        if given is None:
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

        def configured() -> Config:
            return folder.config(
                groups, drawn.maintenance, memory="1MB", transaction_spill_bytes=drawn.spill_bytes,
                mask_secret=SECRET,
                **({"lake": {"about": "_kuvasz"}} if drawn.has_misfits else {}),
                **({"max_row_bytes": str(ROW_LIMIT)} if drawn.is_limited else {}),
            )  # fmt: skip

        self.config = configured()
        for one in groups if drawn.has_misfits else ():
            one["tables"][TABLE]["out_of_range"] = "null"
        self.mended = configured()  #: by which rows that are rejected would fit
        self.mended_at: int | None = None  #: the LSN from which on they do
        self._is_mend_due = False  #: with the next start
        with database.connect() as connection:
            self.writer.define(connection)
        self.observer = Observer(
            database, {TABLE: tuple(drawn.key)}, identify=identify, shows_defaults=drawn.format_version == 3
        )
        self.observer.defaults = defaults
        self.copied: dict[str, int] = {}
        self.left = list(drawn.phases)
        self.cuts: dict[str, dict[str, list[str]]] = {}  #: tag -> target -> its rows when it was made

    def run(self) -> bool:
        """Run all phases; kuvasz runs on from one to the next unless a phase wants it stopped; see `run`."""
        with self.database.connect() as connection:
            self.writer.fill(connection)
        left = self.left
        while True:
            with Pipeline(self.config, self.folder) as pipeline:
                try:
                    self._run_on(pipeline)
                except AssertionError:
                    if not self._is_for_a_person(pipeline):
                        raise
                    return False
            if self._is_mend_due:
                continue
            if not left:
                return True
            way, count = left.pop(0)
            self._phase(way, count)
            if way == "lost":
                shutil.rmtree(self.folder.folder / "state")

    def _run_on(self, pipeline: Pipeline) -> None:
        """Run phases as long as kuvasz may go on."""
        wait_until(
            lambda: self._is_for_a_person(pipeline) or set(pipeline.states().values()) == {State.STREAMING},
            lambda: f"all tables stream: {pipeline.states()} {pipeline.errors()}",
        )
        assert not self._is_for_a_person(pipeline)
        for target in self.plan.targets if not self.copied else ():
            (position,) = pipeline.app.lake.positions(f"shop.{target.name}").values()
            self.copied[target.name] = position.lsn
        if self._is_mend_due:  # this one runs with the map that was mended
            self._mended_at_once(pipeline)
        self._check(pipeline)
        while self.left and self.left[0][0] == "running" and not self._is_mend_due:
            self._phase(*self.left.pop(0), pipeline)
            self._check(pipeline)

    def _is_for_a_person(self, pipeline: Pipeline) -> bool:
        """Whether a table that keeps the past stopped because its meaning cannot be proved, as docs say it may."""
        failed = [one for one in pipeline.app.states.snapshot() if one.state is State.ERROR]
        return bool(failed) and all(
            "clone" not in one.target and any(told in str(one.error) for told in _FOR_A_PERSON) for one in failed
        )

    @property
    def _gone_by(self) -> int:
        """How many phases are over; before the first is the copy."""
        return len(self.plan.phases) - len(self.left)

    def _phase(self, way: str, count: int, pipeline: Pipeline | None = None) -> None:
        self.writer.log.append(f"-- kuvasz is {way}")
        with self.database.connect() as connection:
            for number in range(count):
                if pipeline is not None and number == count // 2 and self.plan.restarts[self._gone_by]:
                    self.writer.log.append("-- all sources are begun again")
                    wait_unchanging(pipeline)
                    pipeline.call(restarted(pipeline))
                self.writer.transaction(connection)

    def _mend(self, pipeline: Pipeline) -> None:
        """Go by a map by which all rows fit from now on; while kuvasz runs, what was rejected is tried under load."""
        ((now,),) = self.database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        self.mended_at, self.config = int(now), self.mended
        self.writer.log.append("-- the map is mended, and what was rejected is tried again")
        if not self.plan.is_mended_live:
            self._is_mend_due = True
            return
        wait_unchanging(pipeline)
        pipeline.call(taken_over(pipeline, self.mended))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self._phase, "trying again", 3)
            self._retry()  # what happens meanwhile may have it try again
            writing.result()
        self._mended_at_once(pipeline)

    def _mended_at_once(self, pipeline: Pipeline) -> None:
        """What was rejected, and fits now, comes in while nothing else happens."""
        self._is_mend_due = False
        pipeline.wait_applied(self.database)
        pipeline.wait_streaming()
        for report in self._retry():
            keeps_past = "append" in report.target or "changelog" in report.target  # nothing of these can be mended
            assert keeps_past or (report.left, report.error) == (0, ""), report

    def _retry(self) -> list[Report]:
        return [
            report
            for target, source in rejects.tables(self.config)
            for report in verify.reports(
                self.config, table=target, sid=source, is_fixing=True, session=self.folder.session
            )
        ]

    def _check(self, pipeline: Pipeline) -> None:
        pipeline.wait_applied(self.database)
        for target in self.plan.targets:
            self._compare(target)
        if self._gone_by == self.plan.is_mended_after and self.mended_at is None:
            self._mend(pipeline)
            for target in self.plan.targets if not self._is_mend_due else ():
                self._compare(target)
        if self.plan.has_parent:
            pipeline.assert_equal(PARENT, oracle.source_rows(self.database.url, PARENT, sid=self.plan.sid))
        if self.plan.cuts[self._gone_by]:
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
        perhaps, rows = self._large(target, rows) if self.plan.is_limited and target.type == "clone" else ([], rows)
        live = {identify(column) for column in self._live()}
        seen = self._seen()
        is_open = target.type == "history" and target.rejects and self.mended_at is not None
        if is_open:  # when the versions begin that were rejected nobody knows
            found = {reader: _open_versions(one) for reader, one in found.items()}
            rows = self._source(target)
        if target.is_soft:
            found = {reader: self._living(one) for reader, one in found.items()}
        if target.keeps:
            perhaps = [*perhaps, *self._earlier(target)]
            for one in found.values():
                self._assert_single(one)
        for reader, one in found.items():
            # Of a clone the columns of now, else all that rows were seen with.
            known = {"twice", "failing", *(live if target.type == "clone" or is_open else seen)}
            here = [column for column in one.columns if column in _FACTS or identify(column) in known]
            if "set" not in target.options:
                # What was added behind the last row is not known before the next one.
                lake_columns = {identify(column) for column in one.columns}
                assert live & seen <= lake_columns, f"{target.name}, {reader}: {one.columns}"
            # A backlog's type that no look has shown brings another `name__old` (docs/schema-changes.md): its values
            # are in both.
            aside = {identify(column) for column in here if _SET_ASIDE.search(column)}
            here = [column for column in here if column in _FACTS or identify(column) not in aside]
            names = [column if column in _FACTS else identify(column) for column in here]
            assert len(set(names)) == len(names), one.columns
            chosen = one.select(here).rows.elements()
            lake_rows = self._relaxed(target, [dict(zip(names, row, strict=True)) for row in chosen])
            expected, either = (
                _rows(names, self._relaxed(target, [{column: row.get(column) for column in names} for row in some]))
                for some in (rows, perhaps)
            )
            shown = _rows(names, lake_rows)
            try:
                oracle.assert_equal(
                    expected, dataclasses.replace(shown, rows=shown.rows - (shown.rows & either.rows))
                )
            except AssertionError as error:
                error.add_note(f"{target.name} as {reader} reads it")
                raise

    def _living(self, rows: oracle.Rows) -> oracle.Rows:
        """Return the rows of a table that are not deleted; of each key there is one row, dead or alive."""
        place = rows.columns.index("_deleted_at")
        self._assert_single(rows)
        living = Counter({row: count for row, count in rows.rows.items() if row[place] is None})
        return oracle.Rows(columns=rows.columns, rows=living)

    def _assert_single(self, rows: oracle.Rows) -> None:
        keys = [number for number, column in enumerate(rows.columns) if identify(column) in self.plan.key]
        counted = Counter(tuple(row[number] for number in keys) for row in rows.rows.elements())
        assert set(counted.values()) <= {1}, f"keys with several rows: {counted.most_common(3)}"

    def _earlier(self, target: Target) -> list[dict]:
        """Return what may be there of rows that do not fit: versions that did. A copy has none, and may have come."""
        copied, _, after = self.observer.split(TABLE, self.copied[target.name])
        events = [event.new for one in after for event in one.events if event.new is not None]
        versions = [row for row in (*copied, *events) if target.has(row["n"])]
        is_mended = self.mended_at is not None
        unfit = [row for row in self._at_source() if not self._may_be_in(target, row, is_mended=is_mended)]
        keys = {tuple(self._key_of(row).values()) for row in (*unfit, *self._too_large(after))}
        mine = [row for row in versions if tuple(self._key_of(row).values()) in keys]
        return self._mapped(target, [row for row in mine if self._may_be_in(target, row, is_mended=is_mended)])

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

    def _at_source(self) -> list[dict]:
        found = oracle.source_rows(self.database.url, TABLE)
        names = [identify(column) for column in found.columns]
        return [dict(zip(names, row, strict=True)) for row in found.rows.elements()]

    def _source(self, target: Target) -> list[dict]:
        rows = [
            row for row in self._at_source() if self._may_be_in(target, row, is_mended=self.mended_at is not None)
        ]
        return self._mapped(target, [row for row in rows if target.has(row["n"])])

    def _large(self, target: Target, rows: list[dict]) -> tuple[list[dict], list[dict]]:
        """Return the rows of a clone that are too large for the stream, and the others.

        A copy or a comparison brings them all the same: whether there was one since nobody knows.
        """
        _, _, after = self.observer.split(TABLE, self.copied[target.name])
        known = self._mapped(target, [dict(self._key_of(row)) for row in self._too_large(after)])
        large = {tuple(row[name] for name in self.plan.key) for row in known}
        is_large = [tuple(row[name] for name in self.plan.key) in large for row in rows]
        return (
            [row for row, found in zip(rows, is_large, strict=True) if found],
            [row for row, found in zip(rows, is_large, strict=True) if not found],
        )

    def _too_large(self, transactions: Iterable[model.Transaction]) -> Iterable[model.Row]:
        """Return the rows whose newest version came with a message that is too large, by their keys of now."""
        newest: dict[tuple, tuple[model.Row, bool]] = {}
        for event in (event for one in transactions for event in one.events):
            if event.old is not None:
                newest.pop(tuple(self._key_of(event.old).values()), None)
            if event.new is not None:
                key = tuple(self._key_of(event.new).values())
                newest[key] = event.new, self._is_too_large(event.new, event.bytes)
        return [row for row, is_too_large in newest.values() if is_too_large]

    def _key_of(self, row: model.Row) -> dict[str, Any]:
        return {name: row[name] for name in self.plan.key}

    def _is_too_large(self, row: model.Row, message_bytes: int) -> bool:
        """Whether the stream rejects a row: its message is too large, and a value of it is that makes it so."""
        is_cut = self.plan.is_limited and message_bytes > ROW_LIMIT
        return is_cut and any(isinstance(value, str) and len(value) > CUT_BYTES for value in row.values())

    def _model(self, target: Target) -> list[dict]:
        copied, _, after = self.observer.split(TABLE, self.copied[target.name])
        copied = [row for row in copied if target.has(row["n"])]
        key, is_full = tuple(self.plan.key), self.plan.identity == "FULL"
        if target.is_sifted:
            after = model.filtered(after, lambda row: target.has(row["n"]), is_full=is_full)
        if target.rejects:
            copied = [row for row in copied if self._may_be_in(target, row, is_mended=False)]

            def fits_in(row: model.Row, message_bytes: int, *, is_mended: bool) -> bool:
                is_fit = self._may_be_in(target, row, is_mended=is_mended)
                return is_fit and not self._is_too_large(row, message_bytes)

            end = FOREVER if self.mended_at is None else self.mended_at
            count = sum(one.lsn < end for one in after)
            after = [
                one
                for some, is_mended in ((after[:count], False), (after[count:], True))
                for one in model.rejecting(
                    some, functools.partial(fits_in, is_mended=is_mended),
                    is_changelog=target.type == "changelog", is_full=is_full,
                )
            ]  # fmt: skip
        if target.type == "append":
            rows = model.append(copied, after)
        elif target.type == "history":
            rows = model.history(copied, after, key)
        else:
            rows = model.changelog(
                copied, after, key, columns=(), copied_lsn=self.copied[target.name], is_full=is_full
            )
        return self._mapped(target, rows)

    def _may_be_in(self, target: Target, row: Mapping[str, Any], *, is_mended: bool) -> bool:
        """Whether a row fits a target."""
        fails = "failing" in target.options.get("set", ()) and getattr(row.get(MISFIT), "year", 0) == FAILS_IN
        return not target.rejects or (not fails and (is_mended or fits(row)))

    def _mapped(self, target: Target, rows: Iterable[Mapping[str, Any]]) -> list[dict]:
        made = [dict(row) | ({"sid": self.plan.sid} if self.plan.sid else {}) for row in rows]
        for row in made:
            if not fits(row):
                row[MISFIT] = None
            row["failing"] = None if row.get(MISFIT) is None else 0
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


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a lake can hold a row."""
    return not isinstance(row.get(MISFIT), str)


def _open_versions(rows: oracle.Rows) -> oracle.Rows:
    """Return the rows of a history that are not over, without what it adds to them."""
    end = rows.columns.index("kvsz_end")
    still = Counter({row: count for row, count in rows.rows.items() if row[end] == model.FOREVER})
    found = oracle.Rows(columns=rows.columns, rows=still)
    return found.select([name for name in rows.columns if not name.startswith("kvsz_")])


def wait_unchanging(pipeline: Pipeline) -> None:
    """Wait until no map is being put into use."""
    wait_until(lambda: not pipeline.app.is_changing, "the map before is in use")


async def restarted(pipeline: Pipeline) -> None:
    """Have all sources begin again."""
    pipeline.app.restart()


async def taken_over(pipeline: Pipeline, config: Config) -> None:
    """Have a running kuvasz go by another map."""
    pipeline.app.take_over(await asyncio.to_thread(pipeline.app.difference, config))


def wait_until_made(make: Callable[[], LakeCut]) -> LakeCut:
    """Make a cut, however often it is refused: its source is being read again, or a table is compared."""
    made: list[LakeCut] = []

    def is_made() -> bool:
        with contextlib.suppress(CutRefused):
            made.append(make())
        return bool(made)

    wait_until(is_made, "a cut is made")
    return made[0]


def _rows(names: list[str], rows: list[dict]) -> oracle.Rows:
    return oracle.Rows(columns=tuple(names), rows=Counter(tuple(row[name] for name in names) for row in rows))
