"""One program on schemas per tenant: they come, go, change names, and leave the map, where others take their sids.

Whoever holds a sid has to be in the lake as it is at the source whenever every table streams: a tenant's schema, or
the plain source that the map has for the sid. Rows under sids that nobody holds stay as they were, and are not looked
at.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from kuvasz.errors import ConfigError
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kuvasz.config.model import Config
    from tests.support.postgres import Database

SIDS = "abcd"
TABLES = ("items", "people")
STEPS = 16
PATIENCE_S = 90.0
PATTERNS = ("tenant_(.+)", "tenant_([a-c])")

_POSITION = "kuvasz.position."
_COUNTS = ("added-records", "deleted-records", "added-position-deletes", "total-records")
_COLUMNS = "(id bigint PRIMARY KEY, n text, big text)"


class Tenancy:
    """What happens to the schemas of one database, to a second one that has no schemas, and to their map."""

    pipeline: Pipeline  #: while it runs

    def __init__(self, seed: int, tenants: Database, plain: Database, lake: LakeFolder) -> None:
        self.random = random.Random(seed)  # noqa: S311 (programs, not secrets)
        self._is_for_all = seed % 3 == 0  #: the publication, of which no table is taken out
        self.tenants = tenants
        self.plain = plain
        self.lake = lake
        self.schemas: list[str] = []  #: that are there, whatever they are called
        self.are_mapped = True  #: the schemas
        self.heirs: list[str] = []  #: sids that the map has the plain database for
        self.pattern = PATTERNS[0]
        self.paused: set[str] = set()  #: schema.table
        self.done: list[str] = []
        self._began = time.monotonic()
        self._number = 0
        self._stack = contextlib.ExitStack()

    def run(self) -> None:
        """Carry the program out."""
        for table in TABLES:
            self.execute(self.plain, f"CREATE TABLE {table} {_COLUMNS}", f"INSERT INTO {table} VALUES (0, 'plain')")
        for sid in SIDS[:2]:
            self.create(f"tenant_{sid}")
        if self._is_for_all:
            self.execute(
                self.tenants, "CREATE PUBLICATION kuvasz_crm FOR ALL TABLES WITH (publish_via_partition_root)"
            )
        with contextlib.ExitStack() as end:
            end.callback(self.stop)
            self.start()
            for _ in range(STEPS):
                self.random.choice(self.steps())()
                self.write()
                time.sleep(self.random.choice([0.0, 0.0, 0.5, 2.0]))
            self.finish()

    def steps(self) -> list[Callable[[], None]]:
        """What may happen, as often as it is to be drawn."""
        return [
            self.create_some, self.create_some, self.drop, self.rename, self.rename, self.swap, self.rename_table,
            self.drop_table, self.truncate, self.add_column, self.pause, self.resync, self.restart, self.restart,
            self.kill, self.reload, self.reload, self.reload, self.wait, self.wait,
        ]  # fmt: skip

    def note(self, *steps: str) -> None:
        self.done += [f"{time.monotonic() - self._began:6.1f} s: {step}" for step in steps]

    def execute(self, database: Database, *statements: str) -> None:
        """Run statements in one transaction."""
        self.note(*(f"{database.name}: {statement}" for statement in statements))
        with database.connect() as session:
            for statement in statements:
                session.execute(statement)

    def number(self) -> int:
        self._number += 1
        return self._number

    # What happens at the source

    def tables_of(self, schema: str) -> list[str]:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename = ANY(%s)"
        return [name for (name,) in self.tenants.execute(query, (schema, list(TABLES)))]

    def write(self) -> None:
        """Change some rows of some of the tables, in one transaction for each database."""
        found = [f"{schema}.{table}" for schema in self.schemas for table in self.tables_of(schema)]
        for database, tables in ((self.tenants, found), (self.plain, list(TABLES))):
            some = self.random.sample(tables, min(len(tables), 3))
            if statements := [statement for table in some for statement in self._changes(table)]:
                self.execute(database, *statements)

    def _changes(self, table: str) -> Iterator[str]:
        number = self.number()
        yield (
            f"INSERT INTO {table} SELECT {1000 * number} + i, '{number}', repeat(md5(i::text), 90)"
            " FROM generate_series(1, 3) i"
        )
        yield f"UPDATE {table} SET n = '{number}' WHERE id % {self.random.randrange(2, 6)} = 0"
        if self.random.random() < 0.4:
            yield f"DELETE FROM {table} WHERE id % {self.random.randrange(5, 30)} = 1"
        if self.random.random() < 0.2:
            yield f"UPDATE {table} SET id = id + 1 WHERE id = (SELECT max(id) FROM {table})"

    def free(self) -> str:
        """Return a name that no schema has: one that the map takes, mostly."""
        names = [f"tenant_{sid}" for sid in SIDS if f"tenant_{sid}" not in self.schemas]
        return self.random.choice([*names, *names, f"old_{self.number()}"])

    def create_some(self) -> None:
        self.create(self.free())

    def create(self, schema: str) -> None:
        statements = [f"CREATE SCHEMA {schema}"]
        for table in self.random.sample(TABLES, self.random.choice([1, 2, 2, 2])):
            statements.append(f"CREATE TABLE {schema}.{table} {_COLUMNS}")
            statements.append(f"INSERT INTO {schema}.{table} SELECT i, '{schema}' FROM generate_series(1, 20) i")
        self.execute(self.tenants, *statements)
        self.schemas.append(schema)

    def drop(self) -> None:
        if len(self.schemas) > 1:
            schema = self.random.choice(self.schemas)
            self.schemas.remove(schema)
            self.execute(self.tenants, f"DROP SCHEMA {schema} CASCADE")

    def rename(self) -> None:
        schema, name = self.random.choice(self.schemas), self.free()
        self.execute(self.tenants, f"ALTER SCHEMA {schema} RENAME TO {name}")
        self.schemas[self.schemas.index(schema)] = name

    def swap(self) -> None:
        if len(self.schemas) > 1:
            one, other = self.random.sample(self.schemas, 2)
            names = ((one, "between"), (other, one), ("between", other))
            self.execute(self.tenants, *(f"ALTER SCHEMA {name} RENAME TO {new}" for name, new in names))

    def rename_table(self) -> None:
        """A table gets out of its schema's set, moves to another schema, or gets a name that the map takes."""
        schema = self.random.choice(self.schemas)
        tables = self.tables_of(schema)
        if len(tables) == len(TABLES):
            self._set_aside(schema, self.random.choice(tables))
            return
        others = [other for other in self.schemas if other != schema]
        table = next(table for table in TABLES if table not in tables)
        query = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename LIKE 'was%%'"
        kept = [name for (name,) in self.tenants.execute(query, (schema,))]
        if kept and self.random.random() < 0.6:
            self.execute(self.tenants, f"ALTER TABLE {schema}.{self.random.choice(kept)} RENAME TO {table}")
        elif others and table in self.tables_of(other := self.random.choice(others)):
            self.execute(self.tenants, f"ALTER TABLE {other}.{table} SET SCHEMA {schema}")

    def _set_aside(self, schema: str, table: str) -> None:
        """Give a table another name, and its index, too: another table of its name may move to the schema."""
        name, query = (
            f"was_{self.number()}",
            "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND tablename = %s",
        )
        ((index,),) = self.tenants.execute(query, (schema, table))
        self.execute(
            self.tenants,
            f"ALTER TABLE {schema}.{table} RENAME TO {name}",
            f"ALTER INDEX {schema}.{index} RENAME TO {name}_pkey",
        )

    def drop_table(self) -> None:
        """It is there again at once, with other rows, now and then."""
        schema = self.random.choice(self.schemas)
        for table in self.tables_of(schema)[:1]:
            self.execute(self.tenants, f"DROP TABLE {schema}.{table}")
            if self.random.random() < 0.7:
                self.execute(self.tenants, f"CREATE TABLE {schema}.{table} {_COLUMNS}",
                             f"INSERT INTO {schema}.{table} VALUES (7, 'anew')")  # fmt: skip

    def truncate(self) -> None:
        schema = self.random.choice(self.schemas)
        for table in self.tables_of(schema):
            self.execute(
                self.tenants, f"TRUNCATE {schema}.{table}", f"INSERT INTO {schema}.{table} VALUES (5, 'left')"
            )

    def add_column(self) -> None:
        schema = self.random.choice(self.schemas)
        for table in self.tables_of(schema)[:1]:
            self.execute(self.tenants, f"ALTER TABLE {schema}.{table} ADD COLUMN IF NOT EXISTS extra int",
                         f"UPDATE {schema}.{table} SET extra = 1 WHERE id % 2 = 0")  # fmt: skip

    # What happens to kuvasz

    def start(self) -> None:
        config = self._config()
        self._stack.enter_context(state_of(config).own("replicates"))
        self.pipeline = self._stack.enter_context(Pipeline(config, self.lake))

    def stop(self) -> None:
        self.note("stop")
        self._stack.close()
        self._stack = contextlib.ExitStack()

    def restart(self) -> None:
        self.stop()
        for _ in range(self.random.randrange(3)):
            self.random.choice([self.create_some, self.drop, self.rename, self.swap, self.write, self.rename_table])()
        self._draw_map()
        self.start()

    def kill(self) -> None:
        self.note("kill")
        self.pipeline.die()
        self.pipeline.error = None
        with contextlib.suppress(AssertionError):
            self._stack.close()
        self._stack = contextlib.ExitStack()
        self.write()
        self.start()

    def reload(self) -> None:
        self._draw_map()
        config, app = self._config(), self.pipeline.app

        async def take_over() -> None:
            app.take_over(app.difference(config))

        try:
            self.pipeline.call(take_over())
            self.pipeline.config = app.config
        except ConfigError as error:
            self.note(f"not live: {error}")
            self.stop()
            self.start()

    def _draw_map(self) -> None:
        self.are_mapped = self.random.random() < 0.7
        self.heirs = self.random.sample(SIDS, self.random.choice([0, 0, 1]))
        self.pattern = self.random.choice([*PATTERNS[:1] * 3, *PATTERNS])
        if not self.are_mapped and not self.heirs:
            self.heirs = [self.random.choice(SIDS)]

    def _config(self) -> Config:
        tables = {table: {"target": f"shop.{table}", "on_schema_change": "evolve"} for table in TABLES}
        groups: list[dict[str, Any]] = []
        if self.are_mapped:
            urls = [{"url": self.tenants.url, "schemas": self.pattern}]
            groups.append({"database": "crm", "urls": urls, "tables": tables})
        urls = [{"url": self.plain.url, "sid": sid} for sid in self.heirs]
        groups += [{"database": "store", "urls": urls, "tables": tables}] if urls else []
        self.note(f"map: schemas {self.pattern if self.are_mapped else 'none'}, plain {self.heirs}")
        return self.lake.config(groups)

    def _tell(self, verb: str) -> None:
        found = self.pipeline.app.states.snapshot()
        if found:
            state = self.random.choice(found)
            self.note(f"{verb} {state.database} {state.key} ({state.table})")
            with contextlib.suppress(KeyError):  # it may be going
                self.pipeline.tell(verb, state.key, state.database)

    def pause(self) -> None:
        self._tell("pause")
        if self.random.random() < 0.5:
            self.write()
            self._resume()

    def _resume(self) -> None:
        for state in self.pipeline.app.states.snapshot():
            if state.is_paused:
                self.note(f"resume {state.database} {state.key} ({state.table})")
                with contextlib.suppress(KeyError):
                    self.pipeline.tell("resume", state.key, state.database)

    def resync(self) -> None:
        self._tell("resync")

    # How it is

    def holders(self) -> dict[tuple[str, str], tuple[Database, str]]:
        """Return who holds which rows: (table, sid) -> database, table there."""
        found: dict[tuple[str, str], tuple[Database, str]] = {}
        for schema in self.schemas if self.are_mapped else ():
            sid = schema.removeprefix("tenant_")
            if schema.startswith("tenant_") and (self.pattern == PATTERNS[0] or sid in "abc"):
                found |= {(table, sid): (self.tenants, f"{schema}.{table}") for table in self.tables_of(schema)}
        for sid in self.heirs:
            found |= {(table, sid): (self.plain, table) for table in TABLES}
        return found

    def are_streaming(self) -> bool:
        """Whether whoever holds rows is known, and every table that is streams."""
        assert self.pipeline.error is None, self.pipeline.error
        assert self.pipeline.exit_code is None, self.pipeline.errors()
        states = self.pipeline.app.states.snapshot()
        known = Counter((state.database, state.table) for state in states if state.state is State.STREAMING)
        wanted = {
            ("crm" if database is self.tenants else f"store_{sid}", name if "." in name else f"public.{name}")
            for (_, sid), (database, name) in self.holders().items()
        }
        return wanted <= known.keys() and all(state.state is State.STREAMING for state in states)

    def difference(self) -> str:
        """Return how the rows of whoever holds some differ from those in the lake; empty if they do not."""
        told = []
        held = self.holders()
        for table in TABLES:
            if not any(name == table for name, _ in held):
                continue
            lake = oracle.lake_rows_pyiceberg(self.lake.pyiceberg, f"shop.{table}", catalog=self.lake.catalog)
            for (name, sid), (database, there) in held.items():
                if name == table:
                    source = oracle.source_rows(database.url, there, sid=sid).select(lake.columns)
                    place = lake.columns.index("sid")
                    rows = Counter({row: count for row, count in lake.rows.items() if row[place] == sid})
                    if rows != source.rows:
                        mine = oracle.Rows(columns=lake.columns, rows=rows)
                        told.append(f"{there} as {sid}: {oracle.difference(source, mine, key=['id'])}")
        return "\n".join(told)

    def past(self) -> str:
        """Return what explains a difference afterwards, shortly: how long it took, and how each table became so."""
        told = [f"after {time.monotonic() - self._began:.1f} s"]
        for table in TABLES:
            found = oracle.open_table(self.lake.pyiceberg, f"shop.{table}", catalog=self.lake.catalog)
            told.append(str({name: at for name, at in found.properties.items() if name.startswith(_POSITION)}))
            for one in found.metadata.snapshots[-12:]:
                if one.summary is not None:
                    entries = one.summary.additional_properties
                    counts = {name: entries[name] for name in _COUNTS if name in entries}
                    told.append(f"{table} {one.timestamp_ms / 1000:.1f} {counts}")
        return "\n".join(told)

    def look(self, patience_s: float = 5.0) -> bool:
        """Return whether every table streams and is as its source within a while; a difference that stays fails."""
        difference, since, end = "", time.monotonic(), time.monotonic() + patience_s
        while time.monotonic() < end or (difference and time.monotonic() < since + PATIENCE_S):
            if not self.are_streaming():
                since, difference = time.monotonic(), ""
                if time.monotonic() >= end:
                    return False
            elif not (difference := self.difference()):
                return True
            time.sleep(0.2)
        assert not difference, f"streaming with a difference: {difference}\n{self.past()}"
        return False

    def wait(self) -> None:
        """Have kuvasz get on for a while, and look at what it shows."""
        self.note("equal" if self.look(self.random.choice([0.5, 5.0, 20.0])) else "not all stream")

    def finish(self) -> None:
        """Have one holder for each sid, do what hints say, and compare."""
        self.stop()
        self.are_mapped, self.pattern = True, PATTERNS[0]
        taken = {schema.removeprefix("tenant_") for schema in self.schemas}
        self.heirs = [sid for sid in self.heirs if sid not in taken]
        self.start()
        self.write()
        end = time.monotonic() + 3 * PATIENCE_S
        while not self.look(10.0):
            assert time.monotonic() < end, f"never at rest: {self.pipeline.states()} {self.pipeline.errors()}"
            self._resume()
            for state in self.pipeline.app.states.snapshot():
                if state.state is State.ERROR and state.error is not None:
                    assert state.error.hint, f"an error without a hint: {state.error}"
                    verb = "resync" if "kuvasz resync" in state.error.hint else "retry"
                    self.note(f"{verb} {state.key}: {state.error}")
                    self.pipeline.tell(verb, state.key, state.database)
        self.write()
        assert self.look(PATIENCE_S), f"never equal: {self.pipeline.states()} {self.pipeline.errors()}"
