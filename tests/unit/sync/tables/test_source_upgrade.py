"""When a server counts as seen at rest, and which other cluster is one that the source goes on with.

With real ones: `tests/acceptance/test_major_upgrade.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError
from kuvasz.evolve import sights
from kuvasz.evolve.known import SourceColumns
from kuvasz.model import Seen, SourcePosition
from kuvasz.ports import Gap
from kuvasz.source import conninfo, slots
from kuvasz.source.catalog import introspect, look, membership, relation_files
from kuvasz.source.catalog.membership import Membership
from kuvasz.source.catalog.relation_files import RelationFile
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.source.check import upgraded
from kuvasz.source.check.upgraded import ServerRest, UpgradedServer
from kuvasz.state.ports import KnownFile, SourceRecord
from kuvasz.sync.tables.source_upgrade import SourceUpgrade
from tests.support.scene import Scene

OLD, NEW, POINT = "7", "8", 5000


class World(Scene):
    """A scene whose server is seen as told; of the old one the lake has both tables."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.record = self.shared.state.record(self.source.name)
        self.record.update(
            SourceRecord(system_id=OLD, timeline=3, history=2, confirmed_lsn=900, started_us=5, rest_xid=784)
        )
        self.upgrade = SourceUpgrade(self.context, self.record)
        self.rest: ServerRest | None = ServerRest(xid=784, lsn=1000)
        self.slot: dict[str, Any] | None = {}
        self.answers = NEW
        self.found = {spec.table: self.seen(spec) for spec in self.source.tables}
        self.before = {
            spec.identifier: self.columns(table)
            for spec, table in zip(self.source.tables, self.found.values(), strict=True)
        }
        self.members = {
            table.relation.oid: Membership(publication="1:2", clauses=frozenset({f"table {table.relation.oid}"}))
            for table in self.found.values()
        }
        self.server: dict[str, Any] = {}
        for spec in self.source.tables:
            self.copy(spec, lsn=800)
            self.place(spec, SourcePosition(lsn=800, system_id=OLD, history=2, commit_lsn=700, xid=80))

    def seen(self, spec: SourceTableSpec, **facts: Any) -> SourceTable:
        table, values = self.table(spec), {"file": 77, "seen": Seen(lsn=4000, until=4000)} | facts
        return dataclasses.replace(table, relation=dataclasses.replace(table.relation, **values))

    @staticmethod
    def columns(table: SourceTable) -> SourceColumns:
        sight = sights.of(table.relation)
        assert sight is not None
        other_rows = {number: column._replace(version=99) for number, column in sight.columns.items()}
        earlier = dataclasses.replace(sight, columns=other_rows)
        return SourceColumns(oid=table.relation.oid, columns={}, file=77, sights=(earlier,))

    def place(self, spec: SourceTableSpec, position: SourcePosition) -> None:
        self.lake.relocate(spec.identifier, self.source.name, position)

    def position(self, spec: SourceTableSpec) -> SourcePosition:
        return self.lake.positions(spec.identifier)[self.source.name]

    def state(self) -> slots.SlotState | None:
        values: dict[str, Any] = {
            "name": self.source.object_name, "plugin": "pgoutput", "database": "shop", "is_temporary": False,
            "active_pid": None, "confirmed_flush_lsn": POINT, "restart_lsn": 4900, "wal_status": "reserved",
            "safe_wal_bytes": None, "retained_bytes": 0,
        }  # fmt: skip
        return None if self.slot is None else slots.SlotState(**(values | self.slot))

    def loaded(self, oids: set[int]) -> UpgradedServer:
        facts: dict[str, Any] = {
            "began_xid": 784, "is_counting": True, "others": (), "younger": frozenset(oids),
            "written": dict.fromkeys(oids, 0),
        }  # fmt: skip
        return UpgradedServer(**(facts | self.server))

    def look(self) -> None:
        self.upgrade.look(None)
        self.upgrade.found_whole()

    @property
    def noted(self) -> int:
        return self.record.standing.rest_xid


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    facts = lambda _: SimpleNamespace(  # noqa: E731
        system_identifier=int(made.answers), timeline=1, started_us=66, database="shop"
    )
    monkeypatch.setattr(upgraded, "at_rest", lambda _: made.rest)
    monkeypatch.setattr(conninfo, "connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(introspect, "server", facts)
    monkeypatch.setattr(slots, "describe", lambda *_: made.state())
    monkeypatch.setattr(look, "tables", lambda *_: made.found)
    monkeypatch.setattr(membership, "load", lambda *_: made.members)
    monkeypatch.setattr(upgraded, "load", lambda _, oids: made.loaded(oids))
    monkeypatch.setattr(
        relation_files, "load",
        lambda _, oids: {oid: RelationFile(file=77, file_xid=5, horizon=9) for oid in oids},
    )  # fmt: skip
    monkeypatch.setattr(made.lake.notes, "columns", lambda target, _: made.before.get(target))
    return made


def test_a_rest_counts_once_the_lake_has_all_of_it(world: World) -> None:
    world.record.update(SourceRecord(system_id=OLD, confirmed_lsn=900))
    world.look()
    assert world.noted == 0
    world.record.confirming(999)
    world.upgrade.note_rest()
    assert world.noted == 0
    world.record.confirming(1000)
    world.upgrade.note_rest()
    assert world.noted == 784


def test_what_no_look_found_whole_is_no_rest(world: World) -> None:
    world.record.update(SourceRecord(system_id=OLD, confirmed_lsn=900))
    world.record.confirming(1000)
    world.upgrade.look(None)
    world.upgrade.note_rest()
    assert world.noted == 0
    world.look()
    assert world.noted == 784
    world.rest = None
    world.look()
    assert world.noted == 784, "a server that is not at rest is found to be further by its number"


def test_another_rest_takes_the_place_of_one_that_was_not_confirmed(world: World) -> None:
    world.record.update(SourceRecord(system_id=OLD, confirmed_lsn=900))
    world.look()
    world.rest = ServerRest(xid=790, lsn=2000)
    world.look()
    world.record.confirming(1500)
    world.upgrade.note_rest()
    assert world.noted == 0
    world.record.confirming(2000)
    world.upgrade.note_rest()
    assert world.record.standing == dataclasses.replace(SourceRecord(system_id=OLD, confirmed_lsn=2000), rest_xid=790)


def test_a_cluster_made_of_a_server_at_rest_is_gone_on_with(world: World) -> None:
    assert world.upgrade.take_over()
    expected = SourcePosition(lsn=POINT, system_id=NEW, history=2, started_us=66)
    assert [world.position(spec) for spec in world.source.tables] == [expected, expected]
    name = world.source.name
    noted = [world.lake.notes.published(spec.identifier, name) for spec in world.source.tables]
    assert noted == [one.render() for one in world.members.values()]
    assert world.record.standing == SourceRecord(
        system_id=NEW, timeline=1, history=2, confirmed_lsn=POINT, started_us=66, proved_lsn=POINT, looked_lsn=POINT
    )
    files = world.shared.state.files(name).all()
    assert files == dict.fromkeys(world.members, KnownFile(file=77, horizon=9))
    assert all(world.lake.notes.gap(spec.identifier, name) is None for spec in world.source.tables)


def test_the_cluster_that_is_known_is_none_that_was_upgraded(world: World) -> None:
    world.answers = OLD
    before = world.record.standing
    assert not world.upgrade.take_over()
    assert world.record.standing == before


def test_what_is_cut_off_is_begun_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relocate, calls = world.lake.relocate, list[str]()

    def once(target: str, source: str, position: SourcePosition) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise LakeError("the catalog does not answer")
        relocate(target, source, position)

    monkeypatch.setattr(world.lake, "relocate", once)
    with pytest.raises(LakeError):
        world.upgrade.take_over()
    assert {world.position(spec).system_id for spec in world.source.tables} == {OLD, NEW}
    assert world.record.standing.system_id == OLD
    assert world.upgrade.take_over()
    assert {world.position(spec).system_id for spec in world.source.tables} == {NEW}
    assert world.record.standing.system_id == NEW


def test_a_table_that_the_lake_has_no_rows_of_is_not_asked_about(world: World) -> None:
    world.lake.forget(world.others.identifier, world.source.name)
    world.found[world.others.table] = world.seen(world.others, file=78)
    assert world.upgrade.take_over()
    assert world.source.name not in world.lake.positions(world.others.identifier)


def _no_slot(world: World) -> None:
    world.slot = None


def _slot(**facts: Any) -> Callable[[World], None]:
    return lambda world: world.slot is not None and world.slot.update(facts)


def _others_relation(**facts: Any) -> Callable[[World], None]:
    return lambda world: world.found.update({world.others.table: world.seen(world.others, **facts)})


def _others(**facts: Any) -> Callable[[World], None]:
    return lambda world: world.found.update(
        {world.others.table: dataclasses.replace(world.found[world.others.table], **facts)}
    )


def _placed(**facts: Any) -> Callable[[World], None]:
    return lambda world: world.place(world.others, dataclasses.replace(world.position(world.others), **facts))


def _standing(**facts: Any) -> Callable[[World], None]:
    return lambda world: world.record.update(dataclasses.replace(world.record.standing, **facts))


def _gap(world: World) -> None:
    world.lake.notes.open_gap(world.others.identifier, world.source.name, Gap(from_lsn=1, noticed_us=1))


def _renamed_column(world: World) -> None:
    relation = world.found[world.others.table].relation
    first, *rest = relation.columns
    _others_relation(columns=(dataclasses.replace(first, name="other"), *rest))(world)


@pytest.mark.parametrize(
    "fault",
    [
        _no_slot, _slot(plugin="wal2json"), _slot(wal_status="lost"), _slot(active_pid=5), _slot(database="other"),
        _slot(confirmed_flush_lsn=850), _standing(confirmed_lsn=0), _standing(rest_xid=0), _standing(rest_xid=783),
        _standing(system_id=""), _standing(history=3), _placed(system_id="6"), _placed(history=1),
        _placed(lsn=POINT + 1), _others_relation(file=78), _others_relation(oid=4), _others_relation(attributes=9),
        _renamed_column, _others(kind=TableKind.PARTITIONED), _others(ancestors=(5,)), _gap,
        lambda world: world.lake.notes.park(world.others.identifier, world.source.name, "log"),
        lambda world: world.source_tables.resync(world.others, is_due=True),
        lambda world: world.found.pop(world.others.table),
        lambda world: world.before.pop(world.others.identifier),
        lambda world: world.members.popitem(),
        lambda world: world.server.update(others=("app",)),
        lambda world: world.server.update(written=dict.fromkeys(world.members, 1)),
    ],
)  # fmt: skip
def test_where_something_may_be_missing_nothing_is_changed(world: World, fault: Callable[[World], object]) -> None:
    fault(world)
    before = world.record.standing, [world.position(spec) for spec in world.source.tables]
    assert not world.upgrade.take_over()
    assert (world.record.standing, [world.position(spec) for spec in world.source.tables]) == before
