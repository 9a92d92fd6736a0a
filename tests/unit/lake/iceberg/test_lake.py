"""The lake of production's face: what each call makes of the parts behind it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kuvasz.errors import LakeError, LakeRewound, TableError, TableGone
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import Column, SourcePosition
from tests.support.changes import ITEMS, TARGET, TEXT, Lines, Sender, feed, insert, relation, target, work
from tests.support.local_lake import LocalWorld

OTHER = "shop.others"


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    for name in (TARGET, OTHER):
        local_world.prepare("eu", name=name)
    local_world.applied(work(Sender().one(insert(1))))
    return local_world


def test_a_patrol_tells_of_what_was_dropped_or_set_back_and_of_nothing_else(world: LocalWorld) -> None:
    assert world.lake.patrol() == []
    world.applied(work(Sender(start=5000).one(insert(2))))
    world.stored().roll_back(1)
    world.catalog.drop(OTHER)
    found = {one.target: type(one.error) for one in world.lake.patrol()}
    assert found == {TARGET: LakeRewound, OTHER: TableGone}


def test_a_catalog_that_does_not_answer_a_patrol_is_asked_by_the_next(world: LocalWorld) -> None:
    world.catalog.is_down = True
    assert world.lake.patrol() == []
    world.catalog.is_down = False


def test_nobody_looks_at_a_table_that_was_let_go_of_meanwhile(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has it: what that one brings between two questions looks as if someone had set it back."""
    mine = world.lake
    first, second = mine._tables[OTHER], mine._tables[TARGET]
    monkeypatch.setattr(mine._tables, "all", lambda: [first, second])
    monkeypatch.setattr(first, "look", lambda: mine.let_go(TARGET))
    brought = {"eu": world.position("eu") + 1000}
    second.index.reset()
    monkeypatch.setattr(second.past, "_witness", SimpleNamespace(known=lambda _: brought, given_up=lambda _: {}))
    ahead: list[Callable[[], object]] = []
    pool = SimpleNamespace(submit=lambda *given: ahead.append(functools.partial(*given)))
    with monkeypatch.context() as patch:
        patch.setattr(mine.engine, "pool", pool)
        mine._tables.read_index_ahead(second)
    assert mine.patrol() == []
    ahead[0]()
    assert not [name for name in world.stored().now.properties if name.startswith("kuvasz.rewound")]
    assert not second.index.is_open


def test_a_table_that_failed_is_not_patrolled(world: LocalWorld) -> None:
    world.loaded().era = WriteEra(accepted={}, error=TableError("it stands"))
    world.catalog.drop(TARGET)
    assert world.lake.patrol() == []


def test_a_failed_table_goes_on_for_who_knows_why_it_failed(world: LocalWorld) -> None:
    eu = Sender(start=5000)
    world.apply(work(eu.one(insert(9, "seven"))))
    failure = world.lake.failure(TARGET, "eu")
    assert failure is not None
    world.lake.resume(TARGET, TableError("something else"))
    assert world.lake.failure(TARGET, "eu") is failure
    world.lake.resume(TARGET, failure)
    assert world.lake.failure(TARGET, "eu") is None
    world.applied(work(eu.one(insert(9, 7))))
    assert world.of("eu")[9] == (7, "b")


def test_who_is_resumed_does_not_undo_that_a_commit_hangs(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is said without the lock, for that commit holds it."""
    table, hangs = world.loaded(), WriteEra(accepted={}, error=TableError("nobody answers"))

    def resumed(era: WriteEra, *_: object) -> WriteEra:
        table.era = hangs
        return era

    monkeypatch.setattr(WriteEra, "resumed", resumed)
    world.lake.resume(TARGET, TableError("of one source"))
    assert table.era is hangs


def test_a_table_that_begins_again_is_looked_at_for_a_rewind(world: LocalWorld) -> None:
    world.applied(work(Sender(start=5000).one(insert(2))))
    world.stored().roll_back(1)
    with pytest.raises(LakeRewound):
        world.lake.prepare(target(), feed(), ITEMS)
    with pytest.raises(LakeRewound):
        world.lake.prepare(target(), feed(), ITEMS)
    world.lake.forget(TARGET, "eu")
    world.lake.prepare(target(), feed(), ITEMS)


def test_what_fits_already_is_neither_looked_at_nor_changed_again(world: LocalWorld) -> None:
    world.lake.prepare(target(), feed("asia"), ITEMS)
    world.catalog.is_down = True
    assert world.lake.prepare(target(), feed("asia"), ITEMS) == ()
    with pytest.raises(LakeError):
        world.lake.prepare(target(), feed("asia"), relation(Column(name="extra", pg_type=TEXT)))
    with pytest.raises(LakeError):
        world.lake.prepare(target(), feed("eu"), ITEMS)  # it has rows, which may have been set back
    world.catalog.is_down = False
    world.lake.prepare(target(), feed("asia"), relation(Column(name="extra", pg_type=TEXT)))
    world.catalog.is_down = True
    with pytest.raises(LakeError):
        world.lake.prepare(target(), feed("asia"), ITEMS)


def test_a_look_serves_all_who_asked_before_it_began(world: LocalWorld) -> None:
    table, before = world.loaded(), time.monotonic()
    table.past.see(before)
    world.catalog.is_down = True
    table.past.see(before)
    with pytest.raises(LakeError):
        table.past.see(time.monotonic())


def test_one_that_streams_changes_its_columns_alone(world: LocalWorld) -> None:
    wider = relation(Column(name="extra", pg_type=TEXT))
    world.applied(work(Sender(start=5000).one(insert(2))))
    world.stored().roll_back(1)
    world.lake.prepare(target(), feed(), wider, is_streaming=True)
    assert world.loaded().definition.schema.by_name("extra") is not None


def test_positions_of_what_is_not_loaded_are_none(world: LocalWorld) -> None:
    assert world.lake.positions(TARGET).keys() == {"eu"}
    assert world.lake.positions("shop.nowhere") == {}


def test_targets_that_a_source_feeds_no_more_are_told(world: LocalWorld) -> None:
    assert world.lake.unmapped({"eu": [TARGET, OTHER]}) == []
    assert world.lake.unmapped({"eu": [TARGET]}) == [(OTHER, "eu")]
    assert world.lake.unmapped({"us": [TARGET]}) == [], "of a source that is not asked for nothing is known"
    world.lake.copy(feed("eu/17", OTHER, sid="eu"), ITEMS, [], SourcePosition(lsn=1000), lambda *_: None)
    assert world.lake.unmapped({"eu": [TARGET, OTHER], "eu/*": [TARGET]}, [OTHER]) == [(OTHER, "eu/17")]


def test_what_every_source_feeds_is_not_asked_for(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    stored = world.lake._tables.stored
    monkeypatch.setattr(world.lake._tables, "stored", lambda name: asked.append(name) or stored(name))
    world.lake.unmapped({"eu": [TARGET, OTHER], "us": [TARGET]})
    assert asked == [OTHER]
    world.lake.unmapped({"eu": [TARGET, OTHER]}, others=[TARGET])
    assert asked[1:] == [TARGET]


def test_while_it_is_copied_a_table_counts_as_that(world: LocalWorld) -> None:
    seen: list[int] = []
    note = lambda: seen.append(world.loaded().commits.copies)  # noqa: E731
    world.lake.copy(feed(), ITEMS, [Lines(((1, 1, "b"),))], SourcePosition(lsn=9000), lambda *_: None, on_read=note)
    world.lake.repair(feed(), ITEMS, [Lines(((1, 1, "b"),))], SourcePosition(lsn=9001), on_read=note)
    with pytest.raises(LakeError):
        world.lake.copy(feed(), ITEMS, [], SourcePosition(lsn=9002), lambda *_: None, on_read=_fail)
    assert (seen, world.loaded().commits.copies) == ([1, 1], 0)


def _fail() -> None:
    raise LakeError("it does not count")


def test_a_lake_that_was_never_opened_can_be_closed(world: LocalWorld) -> None:
    from kuvasz.lake.iceberg.lake import IcebergLake
    from kuvasz.state.memory import MemoryState

    assert IcebergLake(world.config, MemoryState().witness).commit_conflicts == 0
    assert world.lake.why_dead() is None
