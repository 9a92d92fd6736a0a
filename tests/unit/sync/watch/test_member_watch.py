"""Which tables a source's collapses take in; looks need a server."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import SchemaError, TableStuck
from kuvasz.model import SourcePosition
from kuvasz.sync.rules import members as rules
from kuvasz.sync.watch.member_watch import MemberWatch
from tests.support.scene import Scene

EVENTS = "shop.events"


class UnloadedLake:
    """Nothing of it is loaded; its catalog has positions of two sources."""

    def __init__(self) -> None:
        at = SourcePosition(lsn=100)
        self.catalog = {"eu/1": at, "eu/2": at, "us/1": at, "eu": at}
        self.asked = 0

    def positions(self, _: str) -> dict[str, SourcePosition]:
        return {}

    def recorded(self, _: str) -> dict[str, SourcePosition]:
        self.asked += 1
        return dict(self.catalog)

    def forget(self, _: str, name: str, *, is_gone: bool) -> None:
        assert is_gone
        del self.catalog[name]


@pytest.fixture
def lake() -> UnloadedLake:
    return UnloadedLake()


def watch(lake: UnloadedLake) -> MemberWatch:
    """Return that of a source whose collapse takes nothing in."""
    collapse = SimpleNamespace(identifier=EVENTS, is_collapse=True)
    source = SimpleNamespace(name="eu", tables=(collapse,))
    nothing: Any = SimpleNamespace(unbind=lambda *_: None)
    shared = SimpleNamespace(lake=lake, states=nothing, progress=nothing, routes=nothing)
    now = SimpleNamespace(source=SimpleNamespace(name="eu", tables=()))
    context: Any = SimpleNamespace(source=source, shared=shared, source_tables=now, settle=lambda _: None)
    return MemberWatch(context)


def test_members_are_let_go_where_nobody_loads_their_target(lake: UnloadedLake) -> None:
    members = watch(lake)
    members.forget_gone()
    assert set(lake.catalog) == {"us/1", "eu"}
    members.forget_gone()
    assert lake.asked == 1, "the catalog is asked once, not at every look"


def test_a_target_that_cannot_be_read_is_asked_again(lake: UnloadedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source goes on meanwhile."""

    def lost(_: str) -> dict[str, SourcePosition]:
        raise TableStuck("its metadata file is gone")

    members = watch(lake)
    with monkeypatch.context() as patch:
        patch.setattr(lake, "recorded", lost)
        members.forget_gone()
    members.forget_gone()
    assert set(lake.catalog) == {"us/1", "eu"}


def test_nothing_is_kept_of_who_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the map keeps from being replicated stays published as long as it is there, and no longer."""
    scene = Scene(tmp_path)
    member = scene.items.of_member(scene.items.table, 7)
    members, there = MemberWatch(scene.context), [member, scene.others]
    expanded = show(monkeypatch, members, there)
    members.refresh(None)
    for known in (scene.source_tables.tables, scene.source_tables.misfits):
        known |= {"shop.items/7": scene.table(scene.items), "shop.others": scene.table(scene.others)}
    there.remove(member)
    members.refresh(None)
    assert list(scene.source_tables.misfits) == list(scene.source_tables.tables) == ["shop.others"]
    assert len(expanded) == 2


def test_a_look_that_shows_the_same_again_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand members that is most of what a look takes, every five seconds."""
    scene = Scene(tmp_path)
    members, there = MemberWatch(scene.context), [scene.items.of_member(scene.items.table, 7)]
    expanded = show(monkeypatch, members, there)
    members.refresh(None)
    members.refresh(None)
    assert len(expanded) == 1
    there.append(scene.items.of_member(dataclasses.replace(scene.items.table, name="items_8"), 8))
    members.refresh(None)
    assert [spec.member for spec in scene.source_tables.source.tables] == ["7", "8"]
    scene.source_tables.source = dataclasses.replace(scene.source_tables.source, tables=())  # by whoever it may be
    members.refresh(None)
    assert [spec.member for spec in scene.source_tables.source.tables] == ["7", "8"]


def test_a_source_without_collapses_has_nothing_to_remember(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    members = MemberWatch(scene.context)
    members.refresh(None)
    assert scene.source_tables.source.tables == scene.source.tables
    assert members._shown is None


def show(monkeypatch: pytest.MonkeyPatch, members: MemberWatch, there: list[SourceTableSpec]) -> list[Source]:
    """Have looks show tables; returns what each look gave that was compared with the one before."""
    expanded: list[Source] = []

    def found(source: Source, *_: object) -> Source:
        expanded.append(dataclasses.replace(source, tables=tuple(there)))
        return expanded[-1]

    members.has_any = True
    monkeypatch.setattr(rules, "candidates", lambda *_: [spec.key for spec in there])
    monkeypatch.setattr(rules, "expanded", found)
    return expanded


@pytest.mark.parametrize(
    ("has_sid", "sid", "is_refused"), [(True, "eu", True), (True, "us", False), (False, "us", True)]
)
def test_members_are_not_put_beside_those_of_another_source(
    tmp_path: Path, has_sid: bool, sid: str, is_refused: bool
) -> None:
    scene = Scene(tmp_path)
    member = dataclasses.replace(scene.items.of_member(scene.items.table, 7), has_sid=has_sid)
    scene.source_tables.source = dataclasses.replace(scene.source, sid="eu", tables=(member,))
    scene.copy(scene.items)
    scene.context.shared.state.feeds.keep({}, {"before": sid, scene.source.name: "eu", "fed nothing": sid})
    scene.lake.notes.remember_partitions(member.identifier, "before", frozenset({"5 public.items"}))
    watch = MemberWatch(scene.context)
    if is_refused:
        with pytest.raises(SchemaError, match="has the rows of source before"):
            watch.note(member)
    else:
        watch.note(member)
        assert scene.lake.notes.partitions(member.identifier, scene.source.name) == {f"7 {member.table}"}


def test_who_drops_members_and_creates_others_has_no_end_of_them_in_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit to the target, also of other sources, writes their names anew."""
    monkeypatch.setattr(rules, "MOST_REMEMBERED", 3)
    scene = Scene(tmp_path)
    watch = MemberWatch(scene.context)
    scene.copy(scene.items)

    def note(oid: int) -> None:
        table = dataclasses.replace(scene.items.table, name=f"items_{oid}")
        member = scene.items.of_member(table, oid)
        scene.source_tables.source = dataclasses.replace(scene.source, tables=(member,))
        watch.note(member)

    for oid in (7, 8, 9, 7):
        note(oid)
    with pytest.raises(SchemaError, match=r"has the rows of 3 tables of it, .* and at most 3 may be one target"):
        note(10)
    note(9)
