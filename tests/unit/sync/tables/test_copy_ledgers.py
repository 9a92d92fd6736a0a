"""Whether a copy may go on from what an earlier attempt has noted, and what is noted of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import LakeError, SourceError, SourceRefused, TableError
from kuvasz.model import PgType, TableType, Uniqueness
from kuvasz.source import conninfo, snapshot, window
from kuvasz.source.catalog import entries, membership
from kuvasz.source.catalog.table import TableKind
from kuvasz.state.copies.ledger_file import LedgerFile
from kuvasz.sync.tables.copy_ledgers import CopyFacts, CopyLedgers, TableLedger
from tests.support.changes import Sender, insert
from tests.support.scene import Scene

MEMBER = membership.Membership(publication="1:700", clauses=frozenset({"table 2:700"}))


class World(Scene):
    """A table that is copied under one snapshot after another."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        monkeypatch.setattr(type(self.lake), "resumes_copies", True)
        monkeypatch.setattr(type(self.shared.state), "ledger", lambda _, *names: LedgerFile(folder, *names))
        monkeypatch.setattr(snapshot, "session", self._session)
        monkeypatch.setattr(entries, "versions", lambda *_: self.versions)
        monkeypatch.setattr(membership, "load", lambda *_: {self.seen.relation.oid: self.member})
        monkeypatch.setattr(conninfo, "connect_pq", lambda *_: SimpleNamespace(finish=lambda: None))
        monkeypatch.setattr(conninfo, "is_idle", lambda _: self.is_connected)
        monkeypatch.setattr(window, "copy_slot", self._copy_slot)
        monkeypatch.setattr(window, "Window", lambda *_: SimpleNamespace(read=self._changes))
        self.versions, self.member, self.is_connected = "x", MEMBER, True
        self.slot: Any = SimpleNamespace(name="kuvasz_shop", timeline=1)
        self.slot_lsn = 1000
        self.failure: SourceError | None = None
        self.lsn, self.started_us = 1000, 5
        relation = dataclasses.replace(self.table(self.items).relation, uniqueness=Uniqueness(index_oid=9))
        self.seen = dataclasses.replace(self.table(self.items), relation=relation)
        self.ledgers = CopyLedgers(self.context, self.slot)
        self.ends = [10, 20, None]

    @contextlib.contextmanager
    def _session(self, *_: object) -> Iterator[None]:
        yield

    def _copy_slot(self, *_: object) -> int:
        if self.failure is not None:
            raise self.failure
        return self.slot_lsn

    def _changes(self, end: int) -> Iterator[Any]:
        assert end == self.lsn
        yield Sender(start=800).transactions([insert(1)], [insert(2)], [insert(3)])  # at 900, 1000 and 1100

    def key_is(self, kind: PgType) -> None:
        """Have the key be of a type."""
        columns = tuple(
            dataclasses.replace(one, pg_type=kind) if one.is_key else one for one in self.seen.relation.columns
        )
        self.seen = dataclasses.replace(self.seen, relation=dataclasses.replace(self.seen.relation, columns=columns))

    @property
    def facts(self) -> CopyFacts:
        taken = SimpleNamespace(
            consistent_point=self.lsn,
            started_us=self.started_us,
            snapshot_name=f"s{self.lsn}",
            pinned=lambda url: url,
        )
        under: Any = SimpleNamespace(taken=taken, conninfo=lambda: "")
        names: Any = SimpleNamespace(seen=frozenset({(1, "public", "items", 1, "id", "7")}))
        return CopyFacts(spec=self.items, under=under, table=self.seen, names=names, system_id="7")

    @property
    def ranges(self) -> list[snapshot.CopyRange]:
        begins = [0, *(end for end in self.ends if end is not None)]
        return [
            snapshot.CopyRange(
                conninfo="", snapshot_name=f"s{self.lsn}", table=self.seen.table, columns=("id", "n"),
                first_block=begin, end_block=end, size=7,
            )
            for begin, end in zip(begins, self.ends, strict=True)
        ]  # fmt: skip

    @contextlib.contextmanager
    def attempt(self) -> Iterator[TableLedger]:
        with self.ledgers.of(self.facts, self.ranges) as (ledger, _):
            assert ledger is not None
            yield ledger

    def cut_off(self) -> None:
        with self.attempt() as ledger:
            ledger.begin("files of today")
            ledger.note(1, "one")
            ledger.note(2, "two")

    def why_not(self) -> str:
        with self.attempt() as ledger:
            assert ledger.earlier is None or not ledger.why_not
            return ledger.why_not


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_what_is_finished_is_not_wanted_again(world: World) -> None:
    with world.attempt() as ledger:
        assert (ledger.earlier, ledger.why_not) == (None, "")
    world.cut_off()
    assert world.ledgers.has(world.items)
    world.lsn, world.ends = 1100, [5, None]  # it has grown less dense, say: the spans of before count
    with world.ledgers.of(world.facts, world.ranges) as (ledger, ranges):
        assert ledger is not None
        assert ledger.earlier is not None
        assert dict(ledger.earlier.parts) == {1: "one", 2: "two"}
        assert ledger.earlier.made_for == "files of today"
        assert [(one.first_block, one.end_block, one.snapshot_name) for one in ranges] == [
            (0, 10, "s1100"), (10, 20, "s1100"), (20, None, "s1100"),
        ]  # fmt: skip
        (change,) = ledger.earlier.changes
        assert change.transactions.commit_lsn.tolist() == [1000, 1100], "what the first snapshot did not see"
        wanted = ledger.earlier.look_up(["id"], [("1",), ("it's",)])
        assert isinstance(wanted, snapshot.CopyRange)
        assert wanted.query() == (
            'COPY (SELECT "id", "n" FROM ONLY "public"."items"'
            """ WHERE ("id") IN (VALUES ('1'::"pg_catalog"."int8"), ('it''s'))) TO STDOUT"""
        )
        ledger.go_on(2)
        ledger.note(0, "zero")
    world.lsn = 1200
    with world.attempt() as ledger:
        assert ledger.earlier is not None
        assert set(ledger.earlier.parts) == {0, 1, 2}
        (change,) = ledger.earlier.changes
        assert change.transactions.commit_lsn.tolist() == [1000, 1100], "since the earliest of all"
        ledger.go_on(1)
        ledger.close()
    assert not world.ledgers.has(world.items)


def test_a_copy_gets_on_if_it_finishes_more_than_any_attempt_before(world: World) -> None:
    def attempt(*numbers: int, error: Exception) -> list[bool]:
        found = []
        with contextlib.suppress(type(error)), world.attempt() as ledger:
            if ledger.earlier is None:
                ledger.begin("files of today")
            else:
                ledger.go_on(0)
            found.append(ledger.gets_on)
            for number in numbers:
                ledger.note(number, "made")
                found.append(ledger.gets_on)
            raise error
        return found

    old = SourceError("its snapshot is too old")
    assert attempt(0, error=old) == [False, True]
    assert attempt(error=LakeError("the store is away")) == [False]
    world.failure = SourceRefused("all replication slots are in use")
    with pytest.raises(SourceError), world.attempt():
        pass
    world.failure = None
    assert attempt(error=old) == [False], "that no attempt could begin is no reason either"
    assert attempt(1, error=old) == [False, True]
    altered(world)
    assert attempt(0, 1, error=old) == [False, False, False], "begun again: it has to come further than it was"
    assert attempt(error=TableError("given up")) == [False]
    with world.attempt() as ledger:
        assert ledger.gets_on, "a person has it tried again: what is finished counts"


def altered(world: World) -> None:
    world.versions = "y"


def retyped(world: World) -> None:
    relation = world.seen.relation
    column = dataclasses.replace(relation.columns[1], typmod=4)
    columns = (relation.columns[0], column, *relation.columns[2:])
    world.seen = dataclasses.replace(world.seen, relation=dataclasses.replace(relation, columns=columns))


def restarted(world: World) -> None:
    world.started_us += 1


def promoted(world: World) -> None:
    world.slot.timeline = 2


def unpublished(world: World) -> None:
    world.member = dataclasses.replace(MEMBER, clauses=frozenset({"table 3:900"}))


def filtered(world: World) -> None:
    config = world.items.config.model_copy(update={"filter": "n > 1"})
    world.items = dataclasses.replace(world.items, config=config)


def passed(world: World) -> None:
    world.slot_lsn = 1001


def copied_by_nobody(world: World) -> None:
    world.failure = SourceError("it cannot be decoded")


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (altered, "the table was altered"), (retyped, "the table was altered"),
        (restarted, "another server answers, or it was started anew"),
        (promoted, "another server answers, or it was started anew"),
        (unpublished, "the table was not published all the time"), (filtered, "the map takes other rows of it"),
        (passed, "the slot stands at 0/3E9, behind the snapshot that it was begun with"),
        (copied_by_nobody, "the slot could not be copied: it cannot be decoded"),
    ],
)  # fmt: skip
def test_what_makes_it_begin_again(world: World, happens: Callable[[World], None], why: str) -> None:
    world.cut_off()
    assert world.why_not() == ""
    happens(world)
    assert world.why_not() == why
    with world.attempt() as ledger:
        ledger.begin("files of today")
    assert world.why_not() == "", "of nothing that was finished nothing is said"


def test_where_no_slot_is_free_what_is_finished_is_worth_some_attempts(world: World) -> None:
    world.cut_off()
    world.failure = SourceRefused("all replication slots are in use", hint="raise it")
    for _ in range(2):
        with pytest.raises(SourceError, match="in use") as caught:
            world.why_not()
        assert (type(caught.value), caught.value.hint) == (SourceError, "raise it"), "no start is refused for that"
    world.failure = None
    with world.attempt() as ledger:
        assert ledger.earlier is not None
        ledger.go_on(0)
    world.failure = SourceRefused("all replication slots are in use")
    for _ in range(3):
        with pytest.raises(SourceError, match="in use"):
            world.why_not()
    assert world.why_not() == "the changes since then could not be read"


@pytest.mark.parametrize(
    "spans",
    [
        [["public", "items", 0, 10, 1], ["public", "items", 11, None, 1]],
        [["public", "items", 0, 10, 1], ["public", "items", 10, 20, 1]],
        [["public", "items", 0, None, 1], ["public", "items", 10, None, 1]],
        [["public", "others", 0, 10, 1], ["public", "others", 10, None, 1]],
        [["public", "items", 0, 10, 1]],
        [["public", "items"]],
        None,
    ],
)
def test_spans_that_are_not_the_whole_table_are_not_taken(world: World, tmp_path: Path, spans: object) -> None:
    world.cut_off()
    stored = LedgerFile(tmp_path, world.items.identifier, world.source_tables.name(world.items))
    found = stored.read()
    assert found is not None
    stored.begin({**found.head, "spans": spans}, found.parts)
    assert world.why_not() == "its ledger cannot be read"


def test_a_connection_that_is_gone_is_tried_again_and_not_for_ever(world: World) -> None:
    world.cut_off()
    world.failure, world.is_connected = SourceError("the server closed the connection"), False
    with pytest.raises(SourceError), world.attempt():
        pass
    world.failure = None
    for _ in range(2):  # its changes are never read to their end
        assert world.why_not() == ""
    with world.attempt() as ledger:
        assert ledger.why_not == "the changes since then could not be read"
        ledger.begin("files of today")
        ledger.note(0, "zero")
    assert world.why_not() == ""


def test_the_attempts_that_read_them_do_not_count(world: World) -> None:
    world.cut_off()
    for _ in range(9):
        with world.attempt() as ledger:
            ledger.go_on(0)
    assert world.why_not() == ""


def test_the_time_that_it_took_counts_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with world.attempt() as ledger:
        ledger.begin("files of today")
        now[0] += 30
        ledger.note(1, "one")
    now[0] += 1000
    world.source_tables.note(world.items, copy_began=now[0])
    with world.attempt() as ledger:
        ledger.go_on(0)
    assert world.source_tables.look(world.items).copy_began == now[0] - 30


def test_what_did_not_become_visible_is_noted_again(world: World) -> None:
    with world.attempt() as ledger:
        ledger.begin("files of today")
        ledger.note(1, "one")
        ledger.close()
        assert not world.ledgers.has(world.items)
        ledger.reopen()
    with world.attempt() as ledger:
        assert ledger.earlier is not None
        assert dict(ledger.earlier.parts) == {1: "one"}


TEXT = PgType(oid=25, name="text")
CODE = PgType(oid=20001, name="code", schema="public", category="d", base=TEXT)
MOOD = PgType(oid=20002, name="mood", schema="public", category="e")
CITEXT = PgType(oid=20003, name="citext", schema="public")

#: Types of which somebody has made a part whose checks are called where a text becomes a value.
KINDS_MADE = [
    PgType(oid=20004, name="pair", schema="public", category="c"),
    PgType(oid=20005, name="span", schema="public", category="r"),
    PgType(oid=20006, name="_code", schema="public", element=CODE),
    PgType(oid=20007, name="codes", schema="public", category="d",
           base=PgType(oid=20006, name="_code", schema="public", element=CODE)),
]  # fmt: skip


@pytest.mark.parametrize("kind", [
    CODE, MOOD, CITEXT, PgType(oid=3904, name="int4range", category="r"),
    PgType(oid=20008, name="_mood", element=MOOD),
])  # fmt: skip
def test_keys_of_other_types_are_looked_up(world: World, kind: PgType) -> None:
    world.key_is(kind)
    world.cut_off()
    with world.ledgers.of(world.facts, world.ranges) as (ledger, _):
        assert ledger is not None


@pytest.mark.parametrize(
    "without",
    [
        {"kind": TableKind.LEAF}, {"kind": TableKind.PARTITIONED}, {"can_update": False}, "key", "type", "ranges",
        "publication", "lake", *KINDS_MADE,
    ],
)  # fmt: skip
def test_of_other_copies_nothing_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch, without: dict[str, Any] | PgType | str
) -> None:
    world.cut_off()
    if isinstance(without, PgType):
        world.key_is(without)
    elif isinstance(without, dict):
        world.seen = dataclasses.replace(world.seen, **without)
    elif without == "key":
        world.seen = world.table(world.items)
    elif without == "type":
        config = world.items.config.model_copy(update={"type": TableType.HISTORY})
        world.items = dataclasses.replace(world.items, config=config)
    elif without == "ranges":
        world.ends = [None]
    elif without == "publication":
        monkeypatch.setattr(membership, "load", lambda *_: {})
    else:
        monkeypatch.setattr(type(world.lake), "resumes_copies", False)
    with world.ledgers.of(world.facts, world.ranges) as (ledger, ranges):
        assert ledger is None
        assert ranges == world.ranges
    assert not world.ledgers.has(world.items)


def test_it_can_be_dropped(world: World) -> None:
    world.cut_off()
    world.ledgers.drop(world.items)
    assert not world.ledgers.has(world.items)
    world.ledgers.drop(world.items)
