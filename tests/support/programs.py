"""Random programs over one source table and the targets that follow it, drawn from a seed.

A seed draws a `Plan`: the table, the targets with their types and options, and how long it goes on. A `Writer` then
runs transactions on a real server, looking into its catalog for the columns that are there; the same seed writes the
same program. A column's name begins with what it is known by as long as it lives: c3, renamed c3_r7, is column c3.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

TABLE = "t"
PARENT = "parent"  #: what `n` refers to, if there is such a table
#: SQL type -> (values in SQL, (a constant default in SQL, the same as a canonical value)).
VALUES: Mapping[str, tuple[tuple[str, ...], tuple[str, Any]]] = {
    "integer": (("0", "1", "2", "3", "-7", "2147483647"), ("5", 5)),
    "bigint": (("0", "1", "9007199254740993", "-1"), ("6", 6)),
    "text": (
        ("''", "'a'", "'NULL'", "'žlt'", "repeat('x', 2200) || {r}", "repeat('y', 3000) || {r}"), ("'d''q'", "d'q"),
    ),
    "numeric(8,2)": (("0", "1.25", "-999999.99"), ("12.5", decimal.Decimal("12.50"))),
    "numeric(12,2)": (("0", "1.25", "9999999999.99"), ("13.5", decimal.Decimal("13.50"))),
    "real": (("0.1", "'NaN'", "-1.5"), ("0.5", 0.5)),
    "double precision": (("0.1", "'-Infinity'", "1e300"), ("0.25", 0.25)),
    "boolean": (("true", "false"), ("true", True)),
    "date": (("'2024-02-29'", "'1969-12-31'"), ("'2020-01-02'", datetime.date(2020, 1, 2))),
    "timestamp with time zone": (
        ("'2024-02-29 12:00:00.123456+02'", "'1900-01-01 00:00:00+00'"),
        ("'2020-01-02 03:04:05.6+00'", datetime.datetime(2020, 1, 2, 3, 4, 5, 600000, datetime.UTC)),
    ),
}  # fmt: skip
WIDER = {"integer": "bigint", "real": "double precision", "numeric(8,2)": "numeric(12,2)"}
#: Values of `n` with a target of their own, where the table has routes; all others go to that of the rest.
ROUTED = (1, 3)
REST = "rest"
_COLUMNS = {"n": "integer", "c1": "text", "c2": "numeric(8,2)", "c3": "real", "c4": "integer"}
#: Has values that no column of a lake can hold, where the map says that such rows are rejected.
MISFIT = "b"
#: The year of a value of it for which an expression fails, however the map is mended.
FAILS_IN = 1969
#: Values that are larger than `pipeline.memory` has room for, and with it or one of them larger than a row may be.
HUGE = ("repeat('h', 700000) || {r}", "repeat('H', 2500000) || {r}")
ROW_LIMIT = 1_000_000
_MOMENTS = ("'2024-02-29 12:00:00.123456'", "'1969-12-31 23:59:59'", "'infinity'", "'-infinity'")


def identify(name: str) -> str:
    """Return what a column is known by, whatever it is called now."""
    found = re.match(r"[a-z]+\d*", name)
    return found[0] if found else name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A lake table that follows the source table, with the options that the map gives it."""

    type: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pinned: frozenset[str] = frozenset()  #: columns that the map names: they keep their names
    route: int | str | None = None  #: the value of `n`, or `REST`, whose rows it has; None: it has all

    @property
    def name(self) -> str:
        return f"{self.type}_{TABLE}" if self.route is None else f"{self.type}_{TABLE}_{self.route}"

    @property
    def is_sifted(self) -> bool:
        """Whether rows of the table may enter it, or leave it."""
        return "filter" in self.options or self.route is not None

    @property
    def is_soft(self) -> bool:
        """Whether rows that are deleted stay."""
        return "deletes" in self.options

    @property
    def rejects(self) -> bool:
        """Whether rows that do not fit are written down, and left out."""
        return "on_bad_value" in self.options

    @property
    def keeps(self) -> bool:
        """Whether their earlier versions stay."""
        return self.options.get("on_bad_value") == "keep"

    @property
    def entry(self) -> dict[str, Any]:
        """What the map says of the table: the same for all of its routes."""
        if self.route is None:
            return {"type": self.type, "target": self.name, **self.options}
        to, rest = f"{self.type}_{TABLE}_{{n}}", f"{self.type}_{TABLE}_{REST}"
        return {"type": self.type, "route": {"by": "n", "to": to, "allow": [*ROUTED], "rest": rest}, **self.options}

    def has(self, value: int | None) -> bool:
        """Whether it has rows of a value of `n`."""
        if "filter" in self.options and value == 2:
            return False
        return self.route is None or value == self.route or (self.route == REST and value not in ROUTED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a seed stands for, but for the statements."""

    seed: int
    key: Mapping[str, str]  #: column -> SQL type; none: rows are matched as a whole
    identity: str
    targets: tuple[Target, ...]
    format_version: int
    sid: str | None
    maintenance: Mapping[str, Any] | None
    spill_bytes: str
    phases: tuple[tuple[str, int], ...]  #: (running, stopped or lost; number of transactions)
    has_schema_changes: bool
    has_large: bool  #: values that are stored out of line, which updates leave out
    has_huge: bool = False  #: values that are larger than all that may wait in memory
    is_limited: bool = False  #: rows that are larger than `ROW_LIMIT` in the stream are rejected
    is_partitioned: bool = False  #: by the first key column
    cuts: tuple[bool, ...] = ()  #: whether one is made after each of the phases, before which is the copy
    has_parent: bool = False  #: a TRUNCATE of it takes the table's rows too
    is_mended_after: int = -1  #: phases after which the map is mended and what was rejected tried again; -1: never
    is_mended_live: bool = False  #: while kuvasz runs and changes come
    restarts: tuple[bool, ...] = ()  #: whether all sources are begun again in the middle of each phase that runs

    @property
    def columns(self) -> Mapping[str, str]:
        """All columns that the table begins with, with their SQL types."""
        misfit = {MISFIT: "timestamp without time zone"} if self.has_misfits else {}
        return {**self.key, **_COLUMNS, **misfit}

    @property
    def has_misfits(self) -> bool:
        return any("on_bad_value" in target.options for target in self.targets)

    @property
    def pinned(self) -> frozenset[str]:
        named = frozenset({MISFIT}) if self.has_misfits else frozenset()
        return named.union(*(target.pinned for target in self.targets))


def plan(seed: int) -> Plan:
    """Draw a plan."""
    draw = random.Random(f"plan {seed}")  # noqa: S311
    key: Mapping[str, str] = draw.choice(
        ({"k0": "integer"}, {"k0": "integer"}, {"k0": "text"}, {"k0": "integer", "k1": "text"}, {})
    )
    types = ["clone", "append", "history", "changelog"] if key else ["clone", "append"]
    chosen = draw.sample(types, draw.randint(1, 2))
    drawn = [_target(draw, one, key) for one in sorted(chosen)]
    targets = _routed(seed, _rejecting(seed, [_softened(seed, one, key) for one in drawn]))
    maintenance = {
        "interval": "50ms", "min_files": 2, "max_dead_percent": draw.choice((1, 30)),
        "order": draw.choice(("arrival", "key")),
    } if draw.random() < 0.5 else None  # fmt: skip
    # Which version of a row is the newest cannot always be told without the index (docs/internals.md, "append").
    grows = any(target.type in ("append", "changelog") for target in targets)
    is_laid_out = maintenance is not None or any(
        target.options.keys() & {"partition_by", "sort_by"} for target in targets
    )
    identity = draw.choice(("DEFAULT", "FULL")) if key else "FULL"
    # A row that enters a filter, or fits again, lacks what its update leaves out, unless the old row is sent.
    has_large = identity == "FULL" or not any(one.is_sifted or "on_bad_value" in one.options for one in targets)
    is_partitioned = key.get("k0") == "integer" and draw.random() < 0.3
    ways = ["running", "running", "stopped"] + ([] if grows and is_laid_out else ["lost"])
    of_cuts = random.Random(f"cuts {seed}")  # noqa: S311
    of_mends = random.Random(f"mends {seed}")  # noqa: S311
    of_restarts = random.Random(f"restarts {seed}")  # noqa: S311
    of_huge = random.Random(f"huge {seed}")  # noqa: S311
    is_rejecting = any(one.rejects for one in targets)
    made = Plan(
        seed=seed,
        is_mended_after=of_mends.choice((-1, 0, 1, 1, 2)) if is_rejecting else -1,
        is_mended_live=of_mends.random() < 0.7 and bool(key),  # without one it may stop, as docs say
        restarts=tuple(of_restarts.random() < 0.3 for _ in range(5)),
        cuts=tuple(of_cuts.random() < 0.3 for _ in range(5)),
        key=key,
        identity=identity,
        has_large=has_large,
        targets=targets,
        format_version=draw.choice((2, 3, 3)),
        sid=draw.choice((None, "eu")),
        maintenance=maintenance,
        spill_bytes=draw.choice(("64kB", "1MB")),
        phases=tuple((draw.choice(ways), draw.randint(1, 5)) for _ in range(draw.randint(2, 4))),
        has_schema_changes=draw.random() < 0.7,
        is_partitioned=is_partitioned,
        has_parent=draw.random() < 0.3,
    )  # fmt: skip
    has_huge = has_large and of_huge.random() < (0.6 if is_rejecting else 0.25)
    made = dataclasses.replace(made, has_huge=has_huge, is_limited=has_huge and _may_limit(made))
    return dataclasses.replace(made, targets=_keeping(made))


def _keeping(drawn: Plan) -> tuple[Target, ...]:
    """Return the targets, of which some keep earlier versions: where these have the columns of now."""
    draw = random.Random(f"keeps {drawn.seed}")  # noqa: S311 (another one: plans stay as they were)
    if drawn.has_schema_changes or not drawn.key or not drawn.has_misfits or draw.random() >= 0.6:
        return drawn.targets
    return tuple(
        dataclasses.replace(target, options={**target.options, "on_bad_value": "keep"})
        if target.type == "clone" else target
        for target in drawn.targets
    )  # fmt: skip


def _may_limit(drawn: Plan) -> bool:
    """Whether it can be told what a lake holds where large rows are rejected.

    Copies and comparisons bring them in: of a history with versions that begin at a time that nobody knows. Without a
    key they stop the table.
    """
    if not drawn.key or not drawn.has_misfits:
        return False
    is_compared = drawn.has_schema_changes or drawn.is_mended_after >= 0 or "lost" in dict(drawn.phases)
    return not (is_compared and any(target.type == "history" for target in drawn.targets))


def _softened(seed: int, target: Target, key: Mapping[str, str]) -> Target:
    draw = random.Random(f"soft {seed}")  # noqa: S311 (another one: plans stay as they were)
    if target.type != "clone" or not key or draw.random() >= 0.4:
        return target
    return dataclasses.replace(target, options={**target.options, "deletes": "soft"})


def _rejecting(seed: int, targets: list[Target]) -> list[Target]:
    draw = random.Random(f"rejects {seed}")  # noqa: S311 (another one: plans stay as they were)
    if draw.random() >= 0.3 or any(target.is_soft for target in targets):
        return targets
    return [
        dataclasses.replace(target, options={**target.options, **_failing(target), "on_bad_value": "reject"})
        for target in targets
    ]


def _failing(target: Target) -> dict[str, Any]:
    """Return `set` with a column whose expression fails for some rows, if there is one."""
    given = target.options.get("set")
    return {} if given is None else {"set": {**given, "failing": f"10 div (year({MISFIT}) - {FAILS_IN})"}}


def _routed(seed: int, targets: list[Target]) -> tuple[Target, ...]:
    draw = random.Random(f"routes {seed}")  # noqa: S311 (another one: plans stay as they were)
    found: list[Target] = []
    for target in targets:
        routes = (*ROUTED, REST) if draw.random() < 0.3 else (None,)
        pinned = target.pinned | ({"n"} if len(routes) > 1 else set())
        found += [dataclasses.replace(target, route=route, pinned=pinned) for route in routes]
    return tuple(found)


def _target(draw: random.Random, table_type: str, key: Mapping[str, str]) -> Target:
    options: dict[str, Any] = {}
    pinned: set[str] = set()
    if draw.random() < 0.4:
        choices = ["n", "truncate(1, c1)", *(f"bucket(2, {name})" for name in key)]
        options["partition_by"] = [draw.choice(choices)]
    if draw.random() < 0.2:
        options["sort_by"] = ["n desc"]
    if draw.random() < 0.3:
        options["filter"] = "n IS NULL OR n <> 2"
    if draw.random() < 0.25:
        options["set"] = {**{name: name for name in key}, "n": "n", "c1": "c1", "twice": "CAST(n AS bigint) * 2"}
    if key.get("k0") == "text" and "set" not in options and draw.random() < 0.4:
        options["mask"] = {"k0": "hmac"}
    named = str([options.get(option) for option in ("partition_by", "sort_by", "filter", "set", "mask")])
    pinned |= set(re.findall(r"\b[knc]\d?\b", named))
    return Target(type=table_type, options=options, pinned=frozenset(pinned))


class Writer:
    """Writes a plan's statements to a server, and keeps them as SQL."""

    def __init__(self, drawn: Plan, defaults: dict[str, Any]) -> None:
        self.plan = drawn
        self.defaults = defaults  #: what columns that were added have in the rows of before
        self.has_rewritten = False
        self.log: list[str] = []
        self._draw = random.Random(f"statements {drawn.seed}")  # noqa: S311
        self._number = 10
        self._session: psycopg.Connection

    def define(self, session: psycopg.Connection) -> None:
        """Create the table."""
        self._session = session
        columns = self.plan.columns
        more = [f"PRIMARY KEY ({', '.join(self.plan.key)})"] if self.plan.key else []
        if self.plan.has_parent:
            self._run(f"CREATE TABLE {PARENT} (id int PRIMARY KEY)")
            self._run(f"INSERT INTO {PARENT} VALUES (0), (1), (2), (3)")
            more.append(f"FOREIGN KEY (n) REFERENCES {PARENT}")
        by = " PARTITION BY RANGE (k0)" if self.plan.is_partitioned else ""
        self._run(f"CREATE TABLE {TABLE} ({', '.join([*(f'{n} {t}' for n, t in columns.items()), *more])}){by}")
        self._run(f"ALTER TABLE {TABLE} ALTER c1 SET STORAGE EXTERNAL, REPLICA IDENTITY {self.plan.identity}")
        if self.plan.is_partitioned:
            self._attach("MINVALUE", "7")
            self._attach("7", "100")

    def fill(self, session: psycopg.Connection) -> None:
        """Insert what a copy finds."""
        self._session = session
        for _ in range(self._draw.randint(0, 12)):
            self._insert()

    def transaction(self, session: psycopg.Connection) -> None:
        """Run one random transaction."""
        self._session = session
        self.log.append("BEGIN;")
        for _ in range(self._draw.randint(1, 7)):
            if self._draw.random() < 0.12:
                self._savepoint()
            else:
                self._step()
        session.commit()
        self.log.append("COMMIT;")

    def _savepoint(self) -> None:
        self._run("SAVEPOINT s")
        for _ in range(self._draw.randint(1, 4)):
            self._step()
        if self._draw.choice((True, False)):
            self._run("ROLLBACK TO s")
        # As drivers do, also behind that: what follows would be the savepoint's still (docs/limits.md, of TRUNCATE).
        self._run("RELEASE s")

    def _step(self) -> None:
        steps: list[Callable[[], None]] = [self._insert] * 6 + [self._update] * 8 + [self._delete] * 3
        if self.plan.key:
            steps += [self._move] * 2
        if self._draw.random() < 0.15:
            steps = [self._truncate, self._touch]
            if self.plan.is_partitioned:
                steps.append(self._repartition)
        if self.plan.has_schema_changes and self._draw.random() < 0.12:
            steps = [self._add] * 3 + [self._rename, self._widen, self._drop]
        self._draw.choice(steps)()

    # Statements

    def _insert(self) -> None:
        columns = self._columns()
        names = [name for name in columns if identify(name) in self.plan.key or self._draw.random() < 0.9]
        values = ", ".join(self._value(name, columns[name]) for name in names)
        self._run(f"INSERT INTO {TABLE} ({', '.join(names)}) VALUES ({values}) ON CONFLICT DO NOTHING")

    def _update(self) -> None:
        columns = {name: kind for name, kind in self._columns().items() if identify(name) not in self.plan.key}
        names = self._draw.sample(list(columns), min(len(columns), self._draw.randint(1, 2)))
        changed = ", ".join(f"{name} = {self._value(name, columns[name])}" for name in names)
        self._run(f"UPDATE {TABLE} SET {changed} WHERE {self._some()}")

    def _move(self) -> None:
        columns = self._columns()
        name = next(name for name in columns if identify(name) == "k0")
        value = self._value(name, columns[name])
        keys = ", ".join(name for name in columns if identify(name) in self.plan.key)
        one = f"({keys}) IN (SELECT {keys} FROM {TABLE} ORDER BY {keys} LIMIT 1 OFFSET {self._draw.randint(0, 4)})"
        extra = self._draw.choice(("", ", n = 2", ", n = 1"))
        self._run(f"UPDATE {TABLE} SET {name} = {value}{extra} WHERE {one}")

    def _delete(self) -> None:
        self._run(f"DELETE FROM {TABLE} WHERE {self._some()}")

    def _touch(self) -> None:
        self._run(f"UPDATE {TABLE} SET n = n")

    def _truncate(self) -> None:
        is_history = any(target.type == "history" for target in self.plan.targets)
        if self.plan.is_partitioned and is_history and any(way == "lost" for way, _ in self.plan.phases):
            self._touch()  # without the state folder the table is compared, and versions end when that was
            return
        if self.plan.has_parent and self._draw.random() < 0.5:
            self._run(f"TRUNCATE {PARENT} CASCADE")
            self._run(f"INSERT INTO {PARENT} VALUES (0), (1), (2), (3)")
        else:
            self._run(f"TRUNCATE {TABLE}")

    def _repartition(self) -> None:
        """Attach an empty partition, or empty the one that came so and detach it."""
        last = self._session.execute(
            f"SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = '{TABLE}'::regclass"
            f" AND pg_get_expr((SELECT relpartbound FROM pg_class WHERE oid = inhrelid), inhrelid) LIKE '%%(200)'"
        ).fetchone()
        if last is None or last[0] is None:
            self._attach("100", "200")
        else:
            self._run(f"DELETE FROM {last[0]}")
            self._run(f"ALTER TABLE {TABLE} DETACH PARTITION {last[0]}")

    def _attach(self, begin: str, end: str) -> None:
        self._number += 1
        name = f"{TABLE}_p{self._number}"
        self._run(f"CREATE TABLE {name} (LIKE {TABLE} INCLUDING ALL)")
        self._run(f"ALTER TABLE {name} REPLICA IDENTITY {self.plan.identity}")
        self._run(f"ALTER TABLE {TABLE} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end})")

    # Schema changes

    def _add(self) -> None:
        self._number += 1
        name, kind = f"c{self._number}", self._draw.choice(list(VALUES))
        default = ""
        if self._draw.random() < 0.5:
            text, value = VALUES[kind][1]
            self.defaults[name] = value
            default = f" DEFAULT {text}" + self._draw.choice(("", " NOT NULL"))
        self._run(f"ALTER TABLE {TABLE} ADD {name} {kind}{default}")

    def _free(self) -> list[str]:
        pinned = {"n", "c1", *self.plan.pinned, *(["k0"] if self.plan.is_partitioned else [])}
        return [name for name in self._columns() if name not in pinned]

    def _rename(self) -> None:
        is_old_key_told = any(target.type == "changelog" for target in self.plan.targets)
        free = [name for name in self._free() if not (is_old_key_told and identify(name) in self.plan.key)]
        if free:
            self._number += 1
            name = self._draw.choice(free)
            self._run(f"ALTER TABLE {TABLE} RENAME {name} TO {identify(name)}_r{self._number}")

    def _drop(self) -> None:
        free = [name for name in self._free() if identify(name) not in self.plan.key]
        if free:
            name = self._draw.choice(free)
            # Of a column that came meanwhile nobody knows then whether rows of before show its default.
            self.has_rewritten |= identify(name) not in self.plan.columns
            self._run(f"ALTER TABLE {TABLE} DROP {name}")

    def _widen(self) -> None:
        columns = self._columns()
        # What an expression gives has the type it had, and so has what rows are partitioned by.
        has_set = any("set" in target.options for target in self.plan.targets)
        keys = () if self.plan.is_partitioned or has_set else self.plan.key
        free = [name for name in columns if columns[name] in WIDER and name in {*self._free(), *keys}]
        if free:
            name = self._draw.choice(free)
            self.has_rewritten |= columns[name] != "numeric(8,2)"
            self._run(f"ALTER TABLE {TABLE} ALTER {name} TYPE {WIDER[columns[name]]}")

    # What they are made of

    def _columns(self) -> dict[str, str]:
        """Return name -> type of the columns there are now."""
        return dict(
            self._session.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                f" WHERE attrelid = '{TABLE}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            ).fetchall()
        )

    def _value(self, name: str, kind: str) -> str:
        number = self._draw.randint(1, 12)
        if identify(name) in self.plan.key:
            if kind == "text":
                return f"'k{number}'"
            return str(number + 100 * (name == "k0" and self._has_third_part() and self._draw.random() < 0.3))
        if name == "n":
            return self._draw.choice(("NULL", "0", "1", "2", "3"))
        if name == MISFIT:
            return self._draw.choice((*_MOMENTS, "NULL"))
        choices = [text for text in VALUES[kind][0] if self.plan.has_large or "repeat" not in text]
        if name == "c1" and self.plan.has_huge and self._draw.random() < 0.3:
            choices = list(HUGE)
        text = self._draw.choice(choices).format(r=number)
        is_null = self._draw.random() < 0.15 and not self._needs_value(name)
        return "NULL" if is_null else text

    def _has_third_part(self) -> bool:
        count = f"SELECT count(*) FROM pg_inherits WHERE inhparent = '{TABLE}'::regclass"
        return self.plan.is_partitioned and self._session.execute(count).fetchone() == (3,)

    def _needs_value(self, name: str) -> bool:
        found = self._session.execute(
            f"SELECT attnotnull FROM pg_attribute WHERE attrelid = '{TABLE}'::regclass AND attname = %s", (name,)
        ).fetchone()
        return bool(found and found[0])

    def _some(self) -> str:
        """Return a condition that some rows meet; of equal rows without a key perhaps one alone."""
        if not self.plan.key and self._draw.random() < 0.5:
            count = self._draw.randint(1, 2)
            return f"ctid = ANY (ARRAY(SELECT ctid FROM {TABLE} WHERE n = {self._draw.randint(0, 3)} LIMIT {count}))"
        return self._draw.choice(("n = 0", "n = 1", "n IS NULL", "n > 1", "length(c1) > 100", "length(c1) < 5"))

    def _run(self, statement: str) -> None:
        self.log.append(f"{statement};")
        if not statement.startswith("UPDATE"):
            self._session.execute(statement)
            return
        try:
            with self._session.transaction():
                self._session.execute(statement)
        except psycopg.errors.UniqueViolation:
            self.log.append("-- refused: there is such a key")
