"""The map makes other rows than before: no lake goes on beside those that another rule made, without a word."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from kuvasz.errors import OtherRule
from kuvasz.model import SourcePosition, TableType
from tests.support.changes import ITEMS, TARGET, Lines, Sender, feed, insert, target, work
from tests.support.worlds import World

NULLS = "`out_of_range` of the map is another one than the one that its rows were made by"


def prepare(world: World, out_of_range: str, source: str = "eu", **facts: object) -> Sequence[str]:
    wanted = dataclasses.replace(target(**facts), out_of_range=out_of_range)
    return world.lake.prepare(wanted, feed(source), ITEMS)


def copied(world: World, out_of_range: str, *sources: str, **facts: object) -> None:
    for source in sources:
        prepare(world, out_of_range, source, **facts)
        world.copy(source, (1, 1, "one"))


def test_a_clone_is_copied_again_beside_its_rows(world: World) -> None:
    copied(world, "null", "eu", "us")
    assert prepare(world, "null") == ()
    assert prepare(world, "clamp") == (f"its rows are copied again: {NULLS}",)
    assert (list(world.lake.positions(TARGET)), world.of("eu")) == (["us"], {1: (1, "one")})
    world.copy("eu", (1, 2, "two"), lsn=2000)
    assert prepare(world, "clamp") == (), "the copy brought its rule"
    world.applied(work(Sender(start=2000).one(insert(2))))
    assert prepare(world, "clamp") == ()
    assert prepare(world, "clamp", "us") == (f"its rows are copied again: {NULLS}",), "each source by itself"


def test_nothing_else_of_the_map_is_a_rule(world: World) -> None:
    copied(world, "error", "eu")
    wanted = dataclasses.replace(target(), on_schema_change="hold", mask_secret=b"another secret")
    assert world.lake.prepare(wanted, feed(), ITEMS) == ()
    assert prepare(world, "null") == (), "no value was out of range, or the table had stopped"
    assert prepare(world, "error") != (), "now there may be some"


@pytest.mark.parametrize("kind", [TableType.APPEND, TableType.CHANGELOG])
def test_rows_of_two_rules_are_beside_each_other_if_a_person_says_so(world: World, kind: TableType) -> None:
    copied(world, "null", "eu", table_type=kind)
    for _ in range(2):
        with pytest.raises(OtherRule, match=NULLS):
            prepare(world, "clamp", table_type=kind)
    wanted = dataclasses.replace(target(table_type=kind), out_of_range="clamp", keeps_rows=True)
    assert world.lake.prepare(wanted, feed(), ITEMS) == ()
    assert "eu" in world.lake.positions(TARGET)
    assert prepare(world, "clamp", table_type=kind) == (), "it was noted"
    with pytest.raises(OtherRule, match=NULLS):
        prepare(world, "null", table_type=kind)


def prepare_of(world: World, origin: str, kind: TableType) -> Sequence[str]:
    mine = dataclasses.replace(feed(), is_own_alone=origin == "none")
    return world.lake.prepare(target(table_type=kind), mine, ITEMS)


def test_what_came_by_replication_is_missing_once_it_is_wanted(world: World) -> None:
    prepare_of(world, "any", TableType.CLONE)
    world.copy("eu", (1, 1, "one"))
    assert prepare_of(world, "none", TableType.CLONE) == (), "no row is too many"
    (told,) = prepare_of(world, "any", TableType.CLONE)
    assert told == f"its rows are copied again: {NULLS.replace('out_of_range', 'origin')}"
    world.copy("eu", (1, 1, "one"), lsn=2000)
    assert prepare_of(world, "any", TableType.CLONE) == (), "the copy has all"


def test_who_keeps_the_past_is_told_that_rows_are_missing_from_it(world: World) -> None:
    prepare_of(world, "none", TableType.APPEND)
    world.copy("eu", (1, 1, "one"))
    assert prepare_of(world, "none", TableType.APPEND) == ()
    with pytest.raises(OtherRule, match=NULLS.replace("out_of_range", "origin")):
        prepare_of(world, "any", TableType.APPEND)


def test_a_table_that_is_copied_again_by_a_person_has_no_rule_until_then(world: World) -> None:
    copied(world, "null", "eu", table_type=TableType.APPEND)
    world.lake.forget(TARGET, "eu")
    assert prepare(world, "clamp", table_type=TableType.APPEND) == ()
    world.copy("eu", (1, 2, "two"), lsn=2000)
    assert prepare(world, "clamp", table_type=TableType.APPEND) == ()


def test_a_repair_has_all_rows_made_by_its_rule(world: World) -> None:
    copied(world, "null", "eu")
    world.lake.forget(TARGET, "eu", to_repair=True)
    assert prepare(world, "clamp") == ()
    at = SourcePosition(lsn=2000, system_id="7001")
    world.lake.repair(feed(), ITEMS, [Lines(((1, 2, "two"),))], at, lambda *_: None)
    assert prepare(world, "clamp") == ()
    assert prepare(world, "null") == (f"its rows are copied again: {NULLS}",)


def test_what_is_not_repaired_keeps_the_rule_of_its_rows(world: World) -> None:
    """An append table goes over a gap with the rows that it has."""
    copied(world, "null", "eu", table_type=TableType.APPEND)
    world.lake.forget(TARGET, "eu", to_repair=True)
    with pytest.raises(OtherRule, match=NULLS):
        prepare(world, "clamp", table_type=TableType.APPEND)
