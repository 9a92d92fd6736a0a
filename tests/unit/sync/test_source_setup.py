"""What a start finds and does, in which order, and what a look at one table does beside the stream."""

from __future__ import annotations

import dataclasses
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.model import Origin
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, SchemaHeld, SourceError, SourceLocked, SourceRefused, TableError
from kuvasz.model import TableName
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect, look, sizes
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.source_setup import SourceSetup
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.recopy import PositionReset
from kuvasz.sync.watch.last_looks import LastLooks
from tests.support.scene import Scene

WAL_END = 0x1500


class Publications:
    """Made to fit as they are told; some are refused."""

    name, inserts_name = "kuvasz", "kuvasz_inserts"

    def __init__(self, done: list[str]) -> None:
        self._done = done
        self.refused: dict[str, SourceError] = {}
        self.fitted: list[tuple[list[str], list[str]]] = []
        self.withdrawn: list[str] = []
        self.may_name = False
        self.turn = threading.Lock()

    def fit(self, _: object, usable: Any, specs: Any) -> list[str]:
        assert self.turn.locked(), "another look may know of more tables"
        self._done.append("publications")
        self.fitted.append(([spec.identifier for spec, _ in usable], [spec.identifier for spec in specs]))
        return [spec.identifier for spec, table in usable if not table.can_update]

    def withdraw(self, _: object, usable: Any) -> None:
        self.withdrawn = [spec.identifier for spec, _ in usable]

    def may_name_inserts(self, *_: object) -> bool:
        return self.may_name


class Slot:
    """Is there, or is made."""

    def __init__(self, done: list[str]) -> None:
        self._done = done
        self.is_there, self.is_replaced = True, False
        self.stale: frozenset[str] = frozenset()
        self.taken: Any = SimpleNamespace(name="snapshot")

    def check(self, *_: object, **__: object) -> bool:
        self._done.append("slot checked")
        return self.is_there

    def create(self, *_: object) -> Any:
        self._done.append("slot")
        return self.taken


class World(Scene):
    """A source with two tables, of which its catalog says what a test wants."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.done: list[str] = []
        self.publications, self.slot = Publications(self.done), Slot(self.done)
        self.found = {spec.table: self.table(spec) for spec in self.source.tables}
        self.wal_level = "logical"
        self.split: list[str] = []
        self.locked: list[str] = []
        self.looks = LastLooks(self.source_tables, lambda _: ())
        members: Any = SimpleNamespace(
            note=lambda *_: None, refresh=lambda _: self.done.append("members"), forget_gone=lambda: None
        )
        logs: Any = SimpleNamespace(admit=lambda _: None)
        partitions: Any = SimpleNamespace(check=self._check_partitions)
        self.resets = PositionReset(self.context, drop_parked=lambda _: None)
        self.preparation = Preparation(self.context, Approvals(b""), members, logs, self.resets)
        publications: Any = self.publications
        slot: Any = self.slot
        self.setup = SourceSetup(
            self.context, self.preparation, self.looks, members, partitions, publications, slot, self.resets
        )
        facts = SimpleNamespace(
            system_identifier=7, wal_level="logical", version=150004, version_text="15.4", wal_end=0x1F00
        )
        self.facts = facts
        monkeypatch.setattr(conninfo, "connect", lambda _: self)
        monkeypatch.setattr(introspect, "server", lambda _: facts)
        monkeypatch.setattr(look, "wal_end", lambda _: WAL_END)
        monkeypatch.setattr(look, "tables", self._tables)
        monkeypatch.setattr(introspect, "names_of", lambda *_: {})
        monkeypatch.setattr(sizes, "sized_unless_locked", self._sized)

    def _tables(self, _: object, names: list[TableName], __: object) -> dict[TableName, SourceTable]:
        self.done.append("tables")
        return {name: self.found[name] for name in names if name in self.found}

    def _sized(self, _: object, tables: Any) -> list[SourceTable]:
        return [dataclasses.replace(table, pages=200) for table in tables]

    def _check_partitions(self, _: object, prepared: Any) -> set[str]:
        locked = {spec.key for spec, _table in prepared if spec.identifier in self.locked}
        for spec, _table in prepared:
            if spec.key in locked:
                self.context.troubles.refuse(spec, SourceLocked("cannot look into partition public.items_9"))
            if spec.identifier in self.split:
                self.context.troubles.refuse(spec, TableError("its partitions are not what they were"))
        return locked

    # A connection

    def close(self) -> None:
        self.done.append("closed")

    # What is asked of it

    def keyless(self, spec: SourceTableSpec) -> None:
        """Have a table whose UPDATEs would fail while they are published: it is appended."""
        columns = tuple(dataclasses.replace(one, is_key=False) for one in self.found[spec.table].relation.columns)
        relation = dataclasses.replace(self.found[spec.table].relation, columns=columns)
        bare = dataclasses.replace(self.found[spec.table], relation=relation, can_update=False, primary_key=())
        self.found[spec.table] = bare

    def error(self, spec: SourceTableSpec) -> str:
        return str(self.source_tables.look(spec).error)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_start_has_every_table_ready_for_the_stream(world: World) -> None:
    start = world.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.items", "shop.others"]
    assert (start.snapshot, start.publications, start.is_waiting, start.system_id) == (None, ("kuvasz",), False, "7")
    assert world.lake.positions("shop.items") == {}, "prepared, and not yet copied"
    assert world.looks.oids().keys() == {"shop.items", "shop.others"}
    assert world.setup.target_lsn == 0x1F00
    assert world.done[-1] == "closed"


def test_nothing_of_a_table_is_looked_at_before_it_is_known_who_answers(world: World) -> None:
    world.setup.start()
    assert world.done.index("members") < world.done.index("slot checked") < world.done.index("tables")


@pytest.mark.parametrize("is_start", [True, False])
def test_what_a_table_may_lack_is_told_at_its_look(
    world: World, caplog: pytest.LogCaptureFixture, *, is_start: bool
) -> None:
    child = TableName(schema="public", name="child")
    world.found[world.items.table] = world.table(world.items, children=(child,))
    with caplog.at_level(logging.WARNING):
        if is_start:
            world.setup.start()
        else:
            world.setup.look(world.items)
    told = [record for record in caplog.records if record.__dict__["event"] == "children_unmapped"]
    assert [record.__dict__["table"] for record in told] == ["shop.items"]


def test_a_new_slot_is_made_behind_its_publications(world: World) -> None:
    world.slot.is_there = False
    start = world.setup.start()
    assert start.snapshot is world.slot.taken
    assert world.done.index("publications") < world.done.index("slot")


def test_where_the_wal_ended_is_kept_from_the_first_time(world: World) -> None:
    world.setup.start()
    world.facts.wal_end = 0x9999
    world.setup.start()
    assert world.setup.target_lsn == 0x1F00


def test_a_server_without_logical_wal_is_refused(world: World) -> None:
    world.facts.wal_level = "replica"
    with pytest.raises(SourceRefused) as caught:
        world.setup.start()
    assert caught.value.message == "source shop: wal_level is replica, needed is logical"
    assert "slot checked" not in world.done
    assert world.done[-1] == "closed"


def test_a_server_that_cannot_tell_what_came_by_replication_is_refused_where_it_is_to_be_left_out(
    world: World,
) -> None:
    source = dataclasses.replace(world.setup._context.source, origin=Origin.NONE)
    world.setup._context = dataclasses.replace(world.setup._context, source=source)
    with pytest.raises(SourceRefused) as caught:
        world.setup.start()
    assert caught.value.message == "source shop: its version is 15.4, `origin: none` needs 16 or newer"
    assert "slot checked" not in world.done
    world.facts.version = 160000
    world.setup.start()


def test_a_table_that_is_not_there_keeps_no_other_from_it(world: World) -> None:
    del world.found[world.items.table]
    start = world.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.others"]
    assert world.publications.fitted == [(["shop.others"], ["shop.others"])]
    assert world.source_tables.state(world.items) is State.ERROR


def test_a_table_that_the_lake_does_not_take_stays_published_and_does_not_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = world.lake.prepare

    def refuse(target: Any, *given: Any, **options: Any) -> Any:
        if target.name == "shop.items":
            raise TableError("it does not fit")
        return prepare(target, *given, **options)

    monkeypatch.setattr(world.lake, "prepare", refuse)
    start = world.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.others"]
    assert world.publications.fitted == [(["shop.items", "shop.others"], ["shop.others"])]


def test_a_source_of_which_no_table_can_be_replicated_is_refused(world: World) -> None:
    world.found.clear()
    with pytest.raises(SourceRefused, match=r"source shop: none of its tables can be replicated: .*no such table"):
        world.setup.start()
    assert world.publications.fitted == []


def test_tables_that_got_other_names_while_they_were_looked_at_are_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.found.clear()
    seen = world.source_tables.source
    looks = iter([seen, dataclasses.replace(seen, tables=seen.tables[:1])])
    monkeypatch.setattr(
        world.setup._members, "refresh", lambda _: setattr(world.source_tables, "source", next(looks))
    )
    monkeypatch.setattr(world.publications, "withdraw", lambda *_: pytest.fail("what is published stays so"))
    with pytest.raises(SourceError, match="source shop: its tables got other names") as raised:
        world.setup.start()
    assert not isinstance(raised.value, SourceRefused), "kuvasz would end"


def test_one_whose_tables_wait_for_a_person_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could say that word to a kuvasz that has ended."""

    def hold(*_: object, **__: object) -> None:
        raise SchemaHeld("a column went")

    monkeypatch.setattr(world.lake, "prepare", hold)
    start = world.setup.start()
    assert start.tables == ()
    assert world.source_tables.state(world.items) is State.PAUSED


def test_a_table_that_cannot_be_published_is_in_error_alone(world: World) -> None:
    refusal = SourceRefused("must be owner of table items", hint="ALTER TABLE items OWNER TO kuvasz")
    world.publications.refused["shop.items"] = refusal
    start = world.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.others"]
    told = "source shop: must be owner of table items\nhint: ALTER TABLE items OWNER TO kuvasz"
    assert world.error(world.items) == told


def test_a_table_that_somebody_has_locked_is_published_later_and_keeps_no_other_from_it(world: World) -> None:
    world.publications.refused["shop.items"] = SourceLocked("table public.items is locked", hint="see pg_locks")
    start = world.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.others"]
    assert isinstance(world.source_tables.look(world.items).error, SourceLocked)
    assert world.source_tables.look(world.items).retry_at is not None
    assert world.error(world.items) == "source shop: table public.items is locked\nhint: see pg_locks"


def test_a_table_of_which_a_partition_is_locked_keeps_no_other_from_the_stream(world: World) -> None:
    for spec in world.source.tables:
        world.found[spec.table] = dataclasses.replace(world.found[spec.table], kind=TableKind.PARTITIONED)
    world.locked = ["shop.items"]
    start = world.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.others"]
    assert world.publications.fitted == [(["shop.items", "shop.others"], ["shop.items", "shop.others"])]
    assert world.error(world.items) == "cannot look into partition public.items_9"
    assert world.source_tables.look(world.items).retry_at is not None


def test_only_of_tables_that_are_to_be_copied_is_asked_how_large_they_are(world: World) -> None:
    world.copy(world.others)
    world.setup.start()
    tables = world.source_tables.tables
    assert [tables[key].pages for key in ("shop.items", "shop.others")] == [200, 1]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A source with a table whose INSERTs alone are published."""
    from tests.support import scene

    monkeypatch.setattr(scene, "MAP", scene.MAP.replace("items: ,", "items: {{type: append}},"))
    world = World(tmp_path, monkeypatch)
    world.keyless(world.items)
    return world


def test_a_table_of_inserts_waits_until_its_publication_may_be_named(bare: World) -> None:
    start = bare.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.others"]
    assert (start.publications, start.is_waiting) == (("kuvasz",), True)
    bare.publications.may_name = True
    start = bare.setup.start()
    assert [spec.identifier for spec, _ in start.tables] == ["shop.items", "shop.others"]
    assert (start.publications, start.is_waiting) == (("kuvasz", "kuvasz_inserts"), False)


def test_what_the_lake_has_of_another_source_counts_for_nothing_once(world: World) -> None:
    world.copy(world.items)
    world.slot.is_replaced, world.slot.stale = True, frozenset({"shop.others"})
    world.setup.start()
    assert world.resets.is_replaced is False, "the start that found it has dealt with it"
    assert world.resets.is_stranger(world.others)


def test_a_lake_that_does_not_answer_ends_the_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LakeError("the catalog does not answer")

    monkeypatch.setattr(world.lake, "prepare", fail)
    with pytest.raises(LakeError):
        world.setup.start()
    assert world.done[-1] == "closed"


def test_a_look_makes_one_table_ready(world: World) -> None:
    assert world.setup.look(world.items)
    assert world.publications.fitted == [(["shop.items"], ["shop.items"])]
    assert world.looks.oids().keys() == {"shop.items"}
    assert world.done[-1] == "closed"


def test_a_look_at_a_table_that_is_gone_takes_it_out(world: World) -> None:
    world.setup.start()
    del world.found[world.items.table]
    assert not world.setup.look(world.items)
    assert world.publications.fitted[-1] == (["shop.others"], [])
    assert world.source_tables.state(world.items) is State.ERROR


def test_a_look_at_a_table_whose_partitions_do_not_fit_says_so(world: World) -> None:
    world.split = ["shop.items"]
    assert not world.setup.look(world.items)
    assert world.publications.fitted == [(["shop.items"], [])]


def test_a_look_at_a_table_that_cannot_be_published_raises(world: World) -> None:
    world.publications.refused["shop.items"] = SourceRefused("must be owner of table items", hint="own it")
    with pytest.raises(SourceRefused, match="source shop: must be owner of table items"):
        world.setup.look(world.items)


def test_many_targets_are_loaded_side_by_side(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kuvasz.sync.source_setup._FEW", 1)
    together = threading.Barrier(2, timeout=60)
    attach, loaded = world.preparation.attach, set[str]()

    def waiting(spec: SourceTableSpec) -> int:
        if spec.identifier not in loaded:
            loaded.add(spec.identifier)
            together.wait()
        return attach(spec)

    monkeypatch.setattr(world.preparation, "attach", waiting)
    assert [spec.identifier for spec, _ in world.setup.start().tables] == ["shop.items", "shop.others"]
