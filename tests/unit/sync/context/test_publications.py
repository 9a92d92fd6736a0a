from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import Retry, SourceError, SourceLocked, SourceRefused
from kuvasz.source import inserts, publication, slots
from kuvasz.source.catalog import membership, partitions
from kuvasz.source.catalog.membership import Membership
from kuvasz.source.publication import PublicationChanges
from kuvasz.state.tables import State
from kuvasz.sync.context import publications
from kuvasz.sync.context.publications import Publications
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.tables.recopy import PositionReset
from tests.support.scene import Scene


class World(Scene):
    """A scene with its publications, of which the server is told what is in them already."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.there: dict[str, Any] = {}
        self.xid = 701  #: that put the tables into the publication
        self.row_filter = ""  #: the mark of the one that tables have
        self.altered_by_others = 0  #: times that somebody else does so right behind another list
        self.fitted: list[tuple[str, list[str], Sequence[str]]] = []
        self.forgotten: list[str] = []
        self.refused: dict[Any, SourceRefused] = {}
        self.locked: tuple[Any, ...] = ()
        self.left: list[str] = []
        self.begun: list[tuple[str, bool]] = []  #: those whose files were noted, and whether the lake had them then
        resets = PositionReset(self.context, drop_parked=self.forgotten.append)
        self.interrupted: list[str] = []
        self.publications = Publications(self.context, forget=resets.forget, begin=self._begin)
        monkeypatch.setattr(self.context.troubles, "interrupt", lambda spec: self.interrupted.append(spec.identifier))
        monkeypatch.setattr(publication, "exists", lambda _, name: name in self.there)
        monkeypatch.setattr(
            publication, "load_all", lambda _, names: {name: self.there[name] for name in names if name in self.there}
        )
        monkeypatch.setattr(publication, "plan", self._plan)
        monkeypatch.setattr(publication, "refusals", self._refusals)
        monkeypatch.setattr(publication, "carry_out", self._carry_out)
        monkeypatch.setattr(membership, "load", self._members)
        self.wal_lsn = 500
        monkeypatch.setattr(publications, "wal_end", lambda _: self.wal_lsn)
        monkeypatch.setattr(partitions, "horizon", lambda _: partitions.blank_horizon(1))

    def _begin(self, _: object, tables: Any) -> None:
        self.begun += [(spec.identifier, self.source_tables.position(spec) is not None) for spec, _ in tables]

    def _members(self, _: object, name: str, oids: Any, __: object) -> dict[int, Membership]:
        tables = {self.table(spec).relation.oid: spec.table for spec in self.source.tables}
        there = [oid for oid in oids if tables[oid] in self.there.get(name, ())]
        return {
            oid: Membership(
                publication="5:700", clauses=frozenset({f"table {oid}:{self.xid}"}), row_filter=self.row_filter
            )
            for oid in there
        }

    def _plan(
        self, current: Any, name: str, tables: Any, operations: Sequence[str], *, left: Any
    ) -> PublicationChanges:
        self.left = [table.table.name for table in left]
        self.fitted.append((name, [table.table.name for table in tables], operations))
        added = tuple(table.table for table in tables if table.table not in (current or ()))
        return PublicationChanges(added=added, statements=tuple(f"ADD {table}" for table in added))

    def _refusals(self, *given: Any, wanted: Any) -> dict[Any, SourceRefused]:
        tables = given[3]
        return {table.table: self.refused[table.table] for table in tables if table.table in self.refused}

    def _carry_out(self, _: object, name: str, planned: PublicationChanges) -> PublicationChanges:
        added = tuple(table for table in planned.added if table not in self.locked)
        self.there[name] = [*self.there.get(name, ()), *added]
        locked = tuple(table for table in planned.added if table in self.locked)
        return dataclasses.replace(planned, added=added, locked=locked)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_tables_without_identity_have_a_publication_of_their_own(world: World) -> None:
    whole, bare = world.table(world.items), world.table(world.others, can_update=False)
    names = world.publications
    assert [table.table for table in names.fit(None, [(world.items, whole), (world.others, bare)], [])] == [
        bare.table
    ]
    assert world.fitted == [
        (names.name, ["items"], publication.ALL_OPERATIONS),
        (names.inserts_name, ["others"], inserts.OPERATIONS),
    ]


def test_the_second_publication_is_made_only_if_needed_and_emptied_if_not(world: World) -> None:
    usable = [(world.items, world.table(world.items))]
    world.publications.fit(None, usable, [])
    assert [name for name, _, _ in world.fitted] == [world.publications.name]
    world.there[world.publications.inserts_name] = []
    world.publications.fit(None, usable, [])
    assert world.fitted[-1] == (world.publications.inserts_name, [], inserts.OPERATIONS)


def test_a_table_that_cannot_be_published_keeps_no_other_from_it(world: World) -> None:
    usable = [(spec, world.table(spec)) for spec in (world.items, world.others)]
    world.refused = {world.others.table: SourceRefused("must be owner")}
    world.publications.fit(None, usable, [])
    assert world.fitted == [(world.publications.name, ["items"], publication.ALL_OPERATIONS)]
    assert list(world.publications.refused) == ["shop.others"]
    assert world.left == ["others"], "it is not taken out either"
    world.refused[world.items.table] = SourceRefused("must be owner")
    with pytest.raises(SourceRefused, match="must be owner"):
        world.publications.fit(None, usable, [])


def test_nothing_is_withdrawn_where_nothing_was_published(world: World) -> None:
    world.publications.withdraw(None, [])
    assert world.fitted == []
    world.there[world.publications.name] = [world.items.table]
    world.publications.withdraw(None, [])
    assert world.fitted == [(world.publications.name, [], publication.ALL_OPERATIONS)]


def test_a_table_that_is_locked_is_refused_until_it_can_be_published(world: World) -> None:
    usable = [(spec, world.table(spec)) for spec in world.source.tables]
    world.locked = (world.items.table,)
    world.publications.fit(None, usable, world.source.tables)
    (error,) = world.publications.refused.values()
    assert isinstance(error, SourceLocked)
    name = world.publications.name
    assert str(error) == (
        f"table public.items is locked by another session, so publication {name} cannot have it yet\n"
        "hint: see pg_locks for who that is; it is tried again by itself"
    )
    assert world.there[name] == [world.others.table]
    world.locked = ()
    world.publications.fit(None, usable, world.source.tables)
    assert world.publications.refused == {}
    assert world.there[name] == [world.others.table, world.items.table]


def test_a_table_that_is_not_published_has_a_gap(world: World) -> None:
    usable = [(spec, world.table(spec)) for spec in world.source.tables]
    for spec in world.source.tables:
        world.copy(spec)
    # One is looked at, the other one does not follow; once it does, it is to be looked at.
    world.publications.fit(None, usable, [world.items])
    assert (world.forgotten, world.interrupted) == (["shop.items"], [])
    assert world.source_tables.position(world.items) is None
    assert world.source_tables.position(world.others) is not None
    world.states.activate("shop.others", world.source.name, 1)
    world.there.clear()
    world.publications.fit(None, usable, [world.items])
    assert world.interrupted == ["shop.others"]
    assert world.lake.notes.gap("shop.items", world.source.name) is not None
    assert set(world.begun) == {("shop.items", False)}, "it is compared with the file that it has now"


def test_a_table_that_was_there_all_the_time_goes_on(world: World) -> None:
    world.copy(world.items)
    world.there[world.publications.name] = [world.items.table]
    usable = [(world.items, world.table(world.items))]
    world.publications.fit(None, usable, [world.items])
    assert world.source_tables.position(world.items) is not None
    assert world.lake.notes.published("shop.items", world.source.name) == world.publications.seen(world.items) != ""
    world.publications.fit(None, usable, [world.items])
    assert world.source_tables.position(world.items) is not None


def test_a_table_that_came_back_by_another_row_has_a_gap(world: World) -> None:
    world.copy(world.items)
    world.there[world.publications.name] = [world.items.table]
    usable = [(world.items, world.table(world.items))]
    world.publications.fit(None, usable, [world.items])
    world.xid += 1
    world.publications.fit(None, usable, [world.items])
    assert world.source_tables.position(world.items) is None
    assert world.lake.notes.gap("shop.items", world.source.name) is not None


def test_a_table_whose_rows_come_by_another_condition_than_the_maps_has_a_gap(world: World) -> None:
    spec = world.items
    usable = [(spec, world.table(spec))]
    world.copy(spec)
    world.there[world.publications.name] = [spec.table]
    world.publications.fit(None, usable, [spec])
    assert world.forgotten == []
    world.row_filter = "kuvasz 5ad8 2"  # by the same row of the catalog: it was so before the map was changed
    world.publications.fit(None, usable, [spec])
    assert world.forgotten == [spec.identifier]


def test_a_gap_begins_at_the_last_look_that_found_none(world: World) -> None:
    """What was applied since may be behind what is missing."""
    world.copy(world.items, 1000)
    world.there[world.publications.name] = [world.items.table]
    usable = [(world.items, world.table(world.items))]
    world.publications.fit(None, usable, [world.items])
    world.xid, world.wal_lsn = world.xid + 1, 5000
    world.publications.fit(None, usable, [world.items])
    gap = world.lake.notes.gap("shop.items", world.source.name)
    assert gap is not None
    assert gap.from_lsn == 500


@pytest.mark.parametrize(("looked", "begins"), [(0, 1000), (700, 700), (1500, 1000)])
def test_a_gap_that_is_found_at_a_start_begins_at_the_last_look_of_the_process_before(
    world: World, looked: int, begins: int
) -> None:
    world.copy(world.items, 1000)
    world.lake.notes.remember_published("shop.items", world.source.name, "5:700 table 1:600")
    world.there[world.publications.name] = [world.items.table]
    world.source_tables.gap_starts.looked_lsn = looked
    world.publications.fit(None, [(world.items, world.table(world.items))], [world.items])
    gap = world.lake.notes.gap("shop.items", world.source.name)
    assert gap is not None
    assert gap.from_lsn == begins


def test_the_patrol_names_whoever_streams_and_was_interrupted(world: World) -> None:
    usable = [(spec, world.table(spec)) for spec in world.source.tables]
    world.source_tables.tables = {spec.key: table for spec, table in usable}
    world.there[world.publications.name] = [spec.table for spec in world.source.tables]
    assert not world.publications.patrol(None), "nothing was looked at"
    for spec in world.source.tables:
        world.copy(spec)
    world.states.activate("shop.items", world.source.name, 1)
    assert not world.publications.patrol(None), "another one is away"
    world.states.activate("shop.others", world.source.name, 1)
    assert world.publications.patrol(None)
    world.source_tables.set(world.others, State.COPYING)
    assert not world.publications.patrol(None)
    world.states.activate("shop.others", world.source.name, 1)
    world.source_tables.resync(world.others, is_due=True)
    assert not world.publications.patrol(None)
    world.source_tables.resync(world.others, is_due=False)
    world.source_tables.set(world.others, State.PAUSED)
    assert world.interrupted == []
    world.xid += 1
    assert not world.publications.patrol(None)
    assert world.interrupted == ["shop.items"]


@pytest.mark.parametrize(
    ("since", "confirmed", "may"), [(None, 500, False), (500, None, False), (500, 499, False), (500, 500, True)]
)
def test_inserts_are_named_when_the_slot_has_passed_their_publication(
    world: World, monkeypatch: pytest.MonkeyPatch, since: int | None, confirmed: int | None, may: bool
) -> None:
    monkeypatch.setattr(inserts, "since", lambda *_: since)
    monkeypatch.setattr(slots, "describe", lambda *_: SimpleNamespace(confirmed_flush_lsn=confirmed))
    assert world.publications.may_name_inserts(None, None, ()) is may


def test_a_new_slot_begins_behind_the_publication(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[tuple[str, int]] = []
    monkeypatch.setattr(inserts, "mark", lambda _, name, at: marked.append((name, at)))
    taken: Any = SimpleNamespace(consistent_point=700)
    assert world.publications.may_name_inserts(None, taken, ())
    assert marked == [(world.publications.inserts_name, 700)]


def test_a_stream_that_named_it_before_goes_on_to(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the comment says, which others may take away, and where nobody may write one."""
    monkeypatch.setattr(inserts, "since", lambda *_: None)
    monkeypatch.setattr(slots, "describe", lambda *_: SimpleNamespace(confirmed_flush_lsn=500))
    whole = [(world.items, world.table(world.items))]
    bare = [(world.others, world.table(world.others, can_update=False))]
    for spec in (world.items, world.others):
        assert not world.publications.may_name_inserts(None, None, whole + bare)
        world.copy(spec)
    assert world.publications.may_name_inserts(None, None, whole + bare)
    assert not world.publications.may_name_inserts(None, None, whole)


@pytest.fixture
def listing(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which each published table gets another list, by another row of the catalog."""
    spec = world.items
    plan = world._plan

    def planned(*given: Any, **more: Any) -> PublicationChanges:
        found = plan(*given, **more)
        return dataclasses.replace(found, relisted=((spec.table, ("DROP", "ADD")),) if given[2] else ())

    @contextlib.contextmanager
    def relisting(_: object, __: str, ___: object, statements: Sequence[str]) -> Iterator[Callable[[], None]]:
        assert statements == ("DROP", "ADD")
        if world.locked:
            raise SourceLocked("locked")

        def alter() -> None:
            world.xid += 1

        yield alter
        world.xid += world.altered_by_others

    monkeypatch.setattr(publication, "plan", planned)
    monkeypatch.setattr(publication, "relisting", relisting)
    world.there[world.publications.name] = [spec.table]
    return world


def test_another_list_is_no_gap(listing: World) -> None:
    spec = listing.items
    usable = [(spec, listing.table(spec))]
    listing.copy(spec)
    listing.publications.fit(None, usable, [spec])
    listing.publications.fit(None, usable, [spec])
    assert listing.forgotten == []
    assert "703" in listing.context.shared.lake.notes.published(spec.identifier, listing.source_tables.name(spec))


def test_a_row_filter_in_the_place_of_another_one_is_a_gap_also_to_who_dies_in_between(listing: World) -> None:
    spec = listing.items
    usable = [(spec, listing.table(spec))]
    listing.copy(spec)
    listing.row_filter = "kuvasz 5ad8 2"
    listing.publications.fit(None, usable, [spec])
    assert listing.forgotten == [spec.identifier]
    assert listing.xid == 702, "it got another one"
    name = listing.source_tables.name(spec)
    assert listing.context.shared.lake.notes.published(spec.identifier, name) is None


def test_who_is_put_in_anew_right_behind_another_list_has_a_gap(listing: World) -> None:
    spec = listing.items
    usable = [(spec, listing.table(spec))]
    listing.copy(spec)
    listing.altered_by_others = 1
    listing.publications.fit(None, usable, [spec])
    assert listing.forgotten == []
    listing.publications.fit(None, usable, [spec])
    assert listing.forgotten == [spec.identifier]


def test_another_list_hides_no_gap_from_before(listing: World) -> None:
    spec = listing.items
    usable = [(spec, listing.table(spec))]
    listing.copy(spec)
    listing.publications.fit(None, usable, [])  # it streams: its list waits
    assert listing.xid == 701
    name = listing.source_tables.name(spec)
    listing.context.shared.lake.notes.remember_published(spec.identifier, name, "5:700, table 1:1")
    listing.publications.fit(None, usable, [spec])
    assert listing.forgotten == [spec.identifier]


def test_a_table_that_is_locked_gets_its_list_later(listing: World) -> None:
    spec = listing.items
    listing.locked = (spec.table,)
    listing.publications.fit(None, [(spec, listing.table(spec))], [spec])
    assert isinstance(listing.publications.refused[spec.key], SourceLocked)


def test_a_group_of_a_log_alters_no_publication_and_waits_for_what_is_not_in_it(world: World) -> None:
    """It hears what comes; whoever has the slot makes the publications fit."""
    staged: Any = SimpleNamespace(group="blue")
    context = SourceContext.of(world.source, dataclasses.replace(world.shared, staged=staged))
    heard = Publications(context, forget=lambda _: None, begin=world._begin)
    usable = [(spec, world.table(spec)) for spec in world.source.tables]
    there = SimpleNamespace(covers=lambda table: table.table == world.items.table)
    world.there = {heard.name: there}
    planned = PublicationChanges(added=(world.others.table,), dropped=(), tidying=("DROP",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication, "plan", lambda *_, **__: planned)
        patch.setattr(membership, "load", lambda *_: {})
        patch.setattr(publication, "carry_out", lambda *_: pytest.fail("nothing is altered"))
        heard.fit(None, usable, world.source.tables)
        (error,) = heard.refused.values()
        assert (error.retry, list(heard.refused)) == (Retry.TIMED, ["shop.others"])
        assert "shop.others is not in publication" in error.message.replace("public.", "shop.")
        planned = PublicationChanges(relisted=((world.others.table, ("DROP", "ADD")),))
        heard.fit(None, usable, world.source.tables)
        (error,) = heard.refused.values()
        assert "has table public.others with another row filter or list of columns than this map" in error.message
        assert error.hint is not None
        assert "the same in the maps of all groups" in error.hint
        planned = PublicationChanges(is_new=True, settings=("CREATE",))
        with pytest.raises(SourceError, match="is not there"):
            heard.fit(None, usable, world.source.tables)
        planned = PublicationChanges(settings=("SET",))
        with pytest.raises(SourceError, match="does not publish what it has to"):
            heard.fit(None, usable, world.source.tables)
