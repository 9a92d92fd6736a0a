"""Thousands of random histories of one table, without a server: what the catalog proves is right, or nothing is said.

`SchemaWatch`, the table's columns, their evolution and binding are the real ones; the catalog is a model of
``pg_attribute``, and rows go straight into fields. Each value says which column it was written to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kuvasz.errors import CopyNeeded, TableError
from kuvasz.lake.definition.columns import Columns
from kuvasz.model import Relation, Seen, SourcePosition, TableName, TableType
from kuvasz.modes.shape import Shape
from kuvasz.ports import Target
from kuvasz.source import conninfo
from kuvasz.source.catalog.look import Look
from kuvasz.state.tables import State
from kuvasz.sync.rules import eligibility
from kuvasz.sync.watch import schema_watch
from kuvasz.sync.watch.last_looks import LastLooks
from kuvasz.sync.watch.schema_watch import SchemaWatch
from tests.support.examples import examples
from tests.support.lake_columns import Expressions, Iceberg
from tests.support.scene import CATALOG, Scene
from tests.support.source_table import BIGINT, INT, TEXT, VARCHAR, SourceTable

NAME = "shop.items"
SOURCE = "shop"
UNIT = 1_000_000
UNKNOWN = "which of its columns a message means was not found out"
HISTORIES = int(os.environ.get("HISTORIES") or examples(100))

Step = tuple[str, int, str]


@dataclasses.dataclass(frozen=True)
class Row:
    """A row event, with what the stream would say of its table."""

    lsn: int
    xid: int
    era: int  #: grows with whatever touches the catalog's entry
    message: Relation
    live: tuple[int, ...]
    number: int
    values: dict[int, int]


class Server:
    """A source with one table."""

    def __init__(self) -> None:
        self.table = SourceTable(("id", INT), ("a", INT), ("b", TEXT), ("c", TEXT))
        self.table.xid = 1000
        self.rows: dict[int, dict[int, int]] = {}
        self.stream: list[Row] = []
        self._era = 0
        self._counts = 0
        self._open: list[Row] = []
        self.catalog = self.table.catalog()  #: as the last transaction left it
        self.earlier = self.catalog  #: as the one before did
        self.insert()

    def end(self) -> None:
        """Commit."""
        self.earlier, self.catalog = self.catalog, self.table.catalog()
        lsn, xid = self.table.begin()
        self.stream += [dataclasses.replace(row, lsn=lsn, xid=xid) for row in self._open]
        self._open = []
        self.table.clock = self.table.xid  # what comes next is written by the next transaction

    def _take(self, number: int, values: dict[int, int]) -> None:
        self.rows[number] = values
        row = Row(0, 0, self._era, self.table.message(), tuple(self.table.live), number, dict(values))
        self._open.append(row)

    def _value(self, column: int) -> int:
        self._counts += 1
        return column * UNIT + self._counts

    def insert(self) -> None:
        number = len(self.rows) + 1
        self._take(number, {column: self._value(column) for column in self.table.live if column > 1})

    def update(self, place: int) -> None:
        number = 1 + place % len(self.rows)
        columns = [column for column in self.table.live if column > 1]
        changed = {column: self._value(column) for column in columns[place % 2 :: 2]}
        self._take(number, {**self.rows[number], **changed})

    def change(self, step: Step) -> None:
        """Change a column, as the transaction that is open."""
        what, place, name = step
        table = self.table
        names = {column.name for column in table.live.values()}
        rest = [column for column in table.live if column > 1]
        chosen = rest[place % len(rest)] if rest else 0
        table.clock = table.xid  # its next version is the transaction's xid
        if what == "add" and name not in names:
            table.add(name, (INT, TEXT, TEXT)[place % 3])
        elif what in {"drop", "instead"} and chosen:
            was = table.live[chosen]
            self._drop(chosen)
            if what == "instead":
                table.clock = table.xid
                table.add(was.name, was.pg_type)
        elif what == "rename" and chosen and name not in names:
            table.alter(chosen, name=name)
        elif what == "swap" and len(rest) > 1:
            other = rest[(place + 1) % len(rest)]
            mine, theirs = table.live[chosen].name, table.live[other].name
            table.alter(chosen, name=theirs)
            table.clock = table.xid
            table.alter(other, name=mine)
        elif what == "replace" and len(rest) > 1:
            other = rest[(place + 1) % len(rest)]
            was = table.live[chosen].name
            self._drop(chosen)
            table.clock = table.xid
            table.alter(other, name=was)
        elif what == "retype" and chosen:
            kind = (INT, BIGINT, TEXT, VARCHAR)[place % 4]
            is_free = {table.live[chosen].pg_type, kind} <= {TEXT, VARCHAR}
            table.alter(chosen, pg_type=kind)
            table.file += not is_free
        self._era += 1

    def _drop(self, column: int) -> None:
        self.table.drop(column)
        for values in self.rows.values():
            values.pop(column, None)


class Kuvasz:
    """What follows it; made anew, it knows what stands in the lake's properties alone."""

    def __init__(self, server: Server, kind: TableType, folder: Path) -> None:
        self.server, self.kind = server, kind
        self.scene = Scene(folder)
        self.target = Target(name=NAME, type=kind)
        self.iceberg = Iceberg(server.table)
        self.positions: dict[str, SourcePosition] = {}
        self.rows: list[tuple[int, dict[int, int]]] = []  #: in the lake
        self.written: list[tuple[int, dict[int, int]]] = []  #: not committed
        self.through = 0  #: commit LSN of the last that was written
        self.error: TableError | None = None
        self.copies = 0
        self.confirmed = 0  #: place in the stream
        self.looks = 0
        self.start()

    def start(self) -> None:
        """Begin, as after a kill."""
        self.written, self.trouble = [], None
        self.definition = SimpleNamespace(
            name=NAME, target=self.target, schema=self.iceberg.now, key=self.server.table.key, seed=bytes(16),
            format_version=3, is_bag=False, lock=threading.RLock(), read_again=self._read_again,
        )  # fmt: skip
        self.columns = Columns(
            self.iceberg, self.definition, SimpleNamespace(), self.positions, Expressions(), self.positions.pop
        )
        tables = SimpleNamespace(source=self.scene.source, is_streaming=lambda _: True, name=lambda _: SOURCE)
        context = SimpleNamespace(
            source=self.scene.source, url=self.scene.source.url.get, shared=SimpleNamespace(lake=Lake(self)),
            source_tables=tables,
            troubles=SimpleNamespace(stop=self._note), lifetime=SimpleNamespace(is_ending=False),
        )  # fmt: skip
        approvals = SimpleNamespace(
            target_of=lambda _: self.target, followed=lambda _: None, is_believed=lambda *_: False
        )
        self.last_looks = LastLooks(tables, lambda _: ())
        self.watch = SchemaWatch(context, self.last_looks, approvals)
        self._settle()
        self.rewind()

    def _read_again(self, key: tuple[str, ...] | None = None) -> bool:
        self.definition.schema = self.iceberg.now
        self.definition.key = self.definition.key if key is None else key
        return False

    def _note(self, _: object, error: TableError) -> None:
        self.trouble = error

    def prepare(self, target: Target, feed: Any, relation: Relation, *, is_streaming: bool = False) -> Any:
        self.feed = feed
        return self.columns.evolve(target, feed, relation, is_streaming=is_streaming)

    # Its life

    def look(self, *, is_late: bool = False, is_early: bool = False) -> Look:
        """Look at the catalog.

        Args:
            is_late: A transaction came between the question where the WAL ends and the look.
            is_early: The last transaction is in the WAL, and not visible yet.
        """
        server = self.server
        until, lsn = server.table.lsn, server.table.lsn
        lsn -= 15 if is_late else 0
        relation = server.earlier if is_early else server.table.catalog()
        running = frozenset({server.table.xid}) if is_early else frozenset[int]()
        seen = Seen(lsn=lsn, until=until, running=running)
        relation = dataclasses.replace(relation, table=self.scene.items.table, seen=seen)
        return Look(lsn=lsn, table=dataclasses.replace(CATALOG, relation=relation))

    def _settle(self) -> None:
        """Look, follow, and copy if need be."""
        self.looks += 1
        is_early = SOURCE in self.positions and self.looks % 3 == 1
        seen = self.look(is_early=is_early, is_late=self.looks % 3 == 2)
        feed = schema_watch.feed_of(self.scene.source, self.scene.items)
        try:
            self.prepare(self.target, feed, seen.table.relation)
        except TableError as error:
            self.error = error
            return
        self.last_looks.begin([(self.scene.items, seen.table)], seen.lsn)
        if SOURCE not in self.positions:
            shape = self.columns.shapes.of(feed, seen.table.relation)
            if is_early:  # a copy has a snapshot of its own, which is where the WAL was
                self._settle()
                return
            live = tuple(self.server.table.live)
            self.rows = [(number, self._fields(shape, live, values)) for number, values in self.server.rows.items()]
            self.positions[SOURCE] = SourcePosition(lsn=seen.table.relation.seen.until)
            self.iceberg.set_properties(self.columns.made_by(SOURCE))
            self.written = []
            self.copies += 1

    def _fields(self, shape: Shape, live: tuple[int, ...], values: dict[int, int]) -> dict[int, int]:
        ids = [field.field_id for field in self.iceberg.now.fields]
        return {
            number: values[live[binding.column]]
            for number, binding in zip(ids, shape.bindings, strict=True)
            if binding.column >= 0 and live[binding.column] in values
        }

    def rewind(self) -> None:
        """Begin to read at what was confirmed."""
        self.cursor, self.era, self.relation, self.written = self.confirmed, -1, None, []

    def read(self, count: int) -> None:
        """Read some rows."""
        while count and self.error is None and self.cursor < len(self.server.stream):
            count -= 1
            row = self.server.stream[self.cursor]
            if row.era != self.era:
                message = dataclasses.replace(row.message, table=self.scene.items.table)
                self.relation = self.watch.follow(message, row.lsn, row.xid)
                self.era = row.era
            if self.trouble is not None:
                self._mend()
                continue
            self.cursor += 1
            if row.lsn >= self.positions[SOURCE].lsn:
                self._write(row)

    def _write(self, row: Row) -> None:
        try:
            shape = self.columns.shapes.of(self.feed, self.relation)
        except TableError as error:  # it stops, and nothing of it is committed
            self.error, self.written = error, []
            return
        self.written.append((row.number, self._fields(shape, row.live, row.values)))
        self.through = row.lsn

    def _mend(self) -> None:
        trouble, self.trouble = self.trouble, None
        self.commit()
        if isinstance(trouble, CopyNeeded):
            self.positions.pop(SOURCE, None)
            self._settle()
            self.rewind()
        else:
            self.error = trouble

    def commit(self) -> None:
        """Commit what was written, up to the last whole transaction."""
        if self.written and (
            self.cursor == len(self.server.stream) or self.server.stream[self.cursor].lsn != self.through
        ):
            self.rows += self.written
            self.written = []
            self.positions[SOURCE] = SourcePosition(lsn=self.through + 1)

    def confirm(self) -> None:
        """Confirm what is in the lake."""
        while self.confirmed < self.cursor and self.server.stream[self.confirmed].lsn < self.positions[SOURCE].lsn:
            self.confirmed += 1

    def check(self) -> None:
        """No field has values of two columns; with a clone every value is under its column's name.

        A clone may also stop and ask to be copied again (docs/limits.md).
        """
        names = {field.name: field.field_id for field in self.iceberg.now.fields}
        live = {number: column.name for number, column in self.server.table.live.items() if number > 1}
        if self.kind is TableType.CLONE:
            if self.error is not None and self.error.message.endswith(UNKNOWN):
                assert "kuvasz resync" in self.error.hint
                return
            assert self.error is None
            held = dict(self.rows)
            for number, values in self.server.rows.items():
                shown = {column: held[number].get(names[name]) for column, name in live.items()}
                assert shown == {column: values.get(column) for column in live}, number
            return
        assert self.error is None or "another type since" not in self.error.message
        for field in self.iceberg.now.fields:
            columns = {values[field.field_id] // UNIT for _, values in self.rows if field.field_id in values}
            assert len(columns) <= 1, (field.name, columns)
        if self.error is None:
            for number, name in live.items():
                assert {values[names[name]] // UNIT for _, values in self.rows if names[name] in values} <= {number}


class Lake:
    """A lake of one table, as `SchemaWatch` asks it."""

    def __init__(self, kuvasz: Kuvasz) -> None:
        self._kuvasz = kuvasz
        self.notes = SimpleNamespace(columns=lambda _, source: kuvasz.columns.known.get(source))

    def position(self, _: str, source: str) -> SourcePosition | None:
        return self._kuvasz.positions.get(source)

    def prepare(self, *arguments: Any, **options: Any) -> Any:
        return self._kuvasz.prepare(*arguments, **options)

    def make_room(self, _: str, feed: Any, relation: Relation) -> Any:
        return self._kuvasz.columns.make_room(feed, relation)


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_ROWS = ("insert", "update", "update", "update")
_DDL = ("add", "add", "drop", "instead", "rename", "swap", "replace", "retype")
_LIFE = ("read", "read", "commit", "confirm", "kill", "rewind", "look")
_steps = st.lists(
    st.tuples(st.sampled_from([*_ROWS, *_DDL, "end", "end", "end", *_LIFE]), st.integers(0, 7), _NAMES),
    min_size=5, max_size=40,
)  # fmt: skip


def live(kind: TableType, steps: list[Step], folder: Path) -> Kuvasz:
    """Have a history happen, and return what came of it."""
    server = Server()
    server.end()
    server.stream.clear()
    kuvasz = Kuvasz(server, kind, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conninfo, "connect", lambda _: contextlib.closing(SimpleNamespace(close=lambda: None)).thing)
        patch.setattr(schema_watch, "look", lambda *_: (kuvasz.look(), {}))
        patch.setattr(eligibility, "checked", lambda _, __, table: table)
        is_open = False
        for step in [*steps, ("update", 0, ""), ("end", 0, ""), ("read", 10_000, ""), ("commit", 0, "")]:
            what, place, _ = step
            if what == "insert":
                server.insert()
            elif what == "update":
                server.update(place)
            elif what in _DDL:
                server.change(step)
            elif what == "end" or is_open:
                server.end()
            is_open = what in {*_ROWS, *_DDL}
            if what == "read":
                kuvasz.read(place)
            elif what in {"commit", "confirm", "rewind"}:
                getattr(kuvasz, what)()
            elif what in {"kill", "look"} and kuvasz.error is None:
                kuvasz.start()
    return kuvasz


@settings(max_examples=HISTORIES, deadline=None)
@given(steps=_steps)
@example(
    steps=[
        ("instead", 0, "a"),
        ("insert", 0, "a"),
        ("read", 1, "a"),
        ("insert", 0, "a"),
        ("add", 0, "d"),
        ("drop", 2, "a"),
    ]
)
def test_a_clone_is_right_after_any_history(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> None:
    live(TableType.CLONE, steps, tmp_path_factory.mktemp("h")).check()


@settings(max_examples=HISTORIES, deadline=None)
@given(steps=_steps)
@example(steps=[("insert", 0, "a"), ("instead", 1, "a"), ("insert", 0, "a"), ("retype", 5, "a")])
def test_what_keeps_the_past_has_no_value_under_a_wrong_column(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    live(TableType.APPEND, steps, tmp_path_factory.mktemp("h")).check()


class Ahead(Scene):
    """Both tables stream and were looked at; each look is counted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.last_looks, approvals = LastLooks(self.source_tables, lambda _: ()), SimpleNamespace()
        self.watch = SchemaWatch(self.context, self.last_looks, approvals)
        self.wal_lsn, self.looked, self.besides = 2000, list[str](), list[str]()
        self.found = {spec.table: self.table(spec) for spec in self.source.tables}
        for spec in self.source.tables:
            self.copy(spec)
            self.states.activate(spec.identifier, self.source.name, 1)
            self.source_tables.set(spec, State.STREAMING)
            self.last_looks.put(spec, Look(lsn=1000, table=self.seen(spec, 1000)))
        monkeypatch.setattr(conninfo, "connect", lambda _: contextlib.closing(SimpleNamespace(close=lambda: None)))
        monkeypatch.setattr(contextlib, "closing", contextlib.nullcontext)
        monkeypatch.setattr(schema_watch, "look", self._look)
        monkeypatch.setattr(schema_watch, "_AHEAD_EVERY_S", 0.0)

    def seen(self, spec: Any, lsn: int, running: frozenset[int] = frozenset()) -> Any:
        seen = Seen(lsn=lsn, until=lsn, running=running)
        found = self.found[spec.table]
        return dataclasses.replace(found, relation=dataclasses.replace(found.relation, seen=seen))

    def look(self, spec: Any, at: int) -> None:
        """Look at a table for a message of a transaction."""
        self.watch._look(spec, self.found[spec.table].relation, at, 0)

    def _look(
        self, _: object, table: Any, oid: int, xid: int, publications: object, beside: Any
    ) -> tuple[Look, dict[Any, Any]]:
        self.looked.append(table.name)
        return Look(lsn=self.wal_lsn, table=self.seen(SimpleNamespace(table=table), self.wal_lsn)), self._beside(
            beside
        )

    def _beside(self, names: Any) -> dict[Any, Any]:
        self.besides += [name.name for name in names]
        return {
            name: self.seen(SimpleNamespace(table=name), self.wal_lsn, frozenset({77}))
            for name in names if name in self.found
        }  # fmt: skip

    def hear(self, spec: Any, commit_lsn: int, xid: int = 5) -> None:
        self.watch.follow(self.table(spec).relation, commit_lsn, xid)


@pytest.fixture
def ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ahead:
    return Ahead(tmp_path, monkeypatch)


def test_a_look_at_one_table_is_good_for_the_others(ahead: Ahead) -> None:
    ahead.hear(ahead.items, 1500)
    ahead.hear(ahead.others, 1500)
    ahead.hear(ahead.others, 1999)
    assert (ahead.looked, ahead.besides) == (["items"], ["others"])
    ahead.hear(ahead.others, 2100)
    assert ahead.looked == ["items", "others"]


def test_a_transaction_that_was_not_visible_then_needs_another_look(ahead: Ahead) -> None:
    ahead.hear(ahead.items, 1500)
    ahead.hear(ahead.others, 1500, 77)
    assert ahead.looked == ["items", "others"]


@pytest.mark.parametrize("what", ["changed", "gone", "another", "paused", "unfit"])
def test_a_table_that_is_not_as_it_was_has_a_look_of_its_own(ahead: Ahead, what: str) -> None:
    others = ahead.others
    relation = ahead.found[others.table].relation
    if what == "changed":
        relation = dataclasses.replace(relation, file=9)
    elif what == "another":
        relation = dataclasses.replace(relation, oid=999)
    ahead.found[others.table] = dataclasses.replace(
        ahead.found[others.table], relation=relation, why_unsupported="it is a view" if what == "unfit" else ""
    )
    if what == "gone":
        del ahead.found[others.table]
    elif what == "paused":
        ahead.source_tables.set(others, State.PAUSED)
    ahead.hear(ahead.items, 1500)
    known = ahead.last_looks.get(ahead.table(others).relation.oid)
    assert known is not None
    assert known.lsn == 1000


def test_a_look_is_not_put_in_place_of_a_newer_one(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Look(lsn=3000, table=ahead.seen(ahead.others, 3000))
    answer = ahead._look

    def look(*given: Any) -> tuple[Look, dict[Any, Any]]:
        ahead.last_looks.put(ahead.others, newer)
        return answer(*given)

    monkeypatch.setattr(schema_watch, "look", look)
    ahead.hear(ahead.items, 1500)
    assert ahead.last_looks.get(ahead.table(ahead.others).relation.oid) is newer


def test_what_is_wrong_with_other_tables_stops_none(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchemaWatch, "_refuse_partial", lambda _, spec, __: 1 // (spec.table == ahead.items.table))
    ahead.hear(ahead.items, 1500)
    assert [ahead.source_tables.state(spec) for spec in ahead.source.tables] == [State.STREAMING] * 2
    looks = [ahead.last_looks.get(ahead.table(spec).relation.oid) for spec in (ahead.items, ahead.others)]
    assert [known.lsn for known in looks if known] == [2000, 1000]


def test_other_tables_are_looked_at_now_and_then_the_oldest_look_first(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_watch, "_AHEAD", 1)
    tables = [dataclasses.replace(ahead.items, table=TableName(schema="public", name=f"t{n}")) for n in range(4)]
    monkeypatch.setattr(type(ahead.source_tables), "is_streaming", lambda *_: True)
    ahead.source_tables.source = dataclasses.replace(ahead.source, tables=tuple(tables))
    for number, spec in enumerate(tables):
        relation = dataclasses.replace(CATALOG.relation, table=spec.table, oid=500 + number)
        ahead.found[spec.table] = dataclasses.replace(CATALOG, relation=relation)
        monkeypatch.setattr(type(spec), "key", property(lambda spec: spec.table.name))
        ahead.last_looks.put(spec, Look(lsn=1000 - number, table=ahead.seen(spec, 1000 - number)))
    for turn in range(3):
        ahead.wal_lsn = 2000 + turn
        ahead.look(tables[0], ahead.wal_lsn)
    assert ahead.besides == ["t3", "t2", "t1"]
    monkeypatch.setattr(schema_watch, "_AHEAD_EVERY_S", 3600.0)
    ahead.look(tables[0], 9000)
    assert len(ahead.besides) == 3, "not for each message of a thousand tables"


def test_all_tables_that_are_described_next_are_looked_at_together(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of tables the first change of each behind a start had a session and a look of its own."""
    monkeypatch.setattr(type(ahead.source_tables), "is_streaming", lambda *_: True)
    tables = [dataclasses.replace(ahead.items, table=TableName(schema="public", name=f"t{n}")) for n in range(9)]
    for number, spec in enumerate(tables):
        relation = dataclasses.replace(CATALOG.relation, table=spec.table, oid=500 + number)
        ahead.found[spec.table] = dataclasses.replace(CATALOG, relation=relation)
        monkeypatch.setattr(type(spec), "key", property(lambda spec: spec.table.name))
        ahead.last_looks.put(spec, Look(lsn=1000, table=ahead.seen(spec, 1000)))
    for at in (2000, 3000):
        ahead.wal_lsn = at
        ahead.besides.clear()
        ahead.watch.announce([503, 500, 501, 999, 502])
        ahead.look(tables[3], at)
        assert ahead.besides == ["t0", "t1", "t2"], (
            "however often; not the one that is looked at anyway, nor strangers"
        )
    ahead.besides.clear()
    ahead.watch._ahead_at = float("inf")
    ahead.look(tables[3], 4000)
    assert not ahead.besides, "what was announced counts for one gulp"
    monkeypatch.setattr(schema_watch, "_ANNOUNCED", 2)
    ahead.watch.announce([500, 501, 502, 504, 505])
    for expected in (["t0", "t1"], ["t0", "t1", "t2", "t4"]):
        ahead.look(tables[3], 5000)
        assert ahead.besides == expected, "those that are left are looked at with the next that has to be"
