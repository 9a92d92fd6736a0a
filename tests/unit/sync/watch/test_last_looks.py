from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.config.model import RouteConfig
from kuvasz.model import TableName
from kuvasz.source.catalog.look import Look
from kuvasz.state.tables import State
from kuvasz.sync.watch.last_looks import LastLooks
from tests.support.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_table_is_found_by_its_name_for_the_first_time_and_by_its_oid_from_then_on(scene: Scene) -> None:
    looks = LastLooks(scene.source_tables, scene.context.targets_of)
    table = scene.table(scene.items)
    renamed = dataclasses.replace(table.relation, table=TableName(schema="public", name="things"))
    assert looks.specs(table.relation) == (scene.items,)
    assert looks.specs(renamed) == ()
    looks.begin([(scene.items, table)], 500)
    assert looks.specs(renamed) == (scene.items,)
    assert looks.oids() == {"shop.items": table.relation.oid}


def test_a_table_whose_rows_another_entry_has_is_that_ones_whatever_it_was_called(scene: Scene) -> None:
    """It was dropped, and another table has its name now: its last changes are still to come."""
    looks = LastLooks(scene.source_tables, scene.context.targets_of)
    gone = dataclasses.replace(scene.table(scene.items).relation, oid=70)
    assert looks.specs(gone) == (scene.items,)
    scene.shared.routes.claim("shop", scene.others, 70)
    assert looks.specs(gone) == (scene.others,)


def test_a_name_counts_as_soon_as_the_source_tables_know_it(scene: Scene) -> None:
    looks = LastLooks(scene.source_tables, scene.context.targets_of)
    things = TableName(schema="public", name="things")
    relation = dataclasses.replace(scene.table(scene.items).relation, table=things)
    assert looks.specs(relation) == ()
    scene.source_tables.rename(scene.items, things)
    (found,) = looks.specs(relation)
    assert found.key == "shop.items"


def test_a_member_is_known_by_its_oid_whatever_it_is_called(scene: Scene) -> None:
    looks = LastLooks(scene.source_tables, scene.context.targets_of)
    member = dataclasses.replace(scene.items, member="77")
    scene.source_tables.source = dataclasses.replace(scene.source, tables=(member,))
    relation = dataclasses.replace(scene.table(scene.items).relation, table=TableName(schema="x", name="y"))
    assert looks.specs(dataclasses.replace(relation, oid=77)) == (member,)
    assert looks.specs(dataclasses.replace(relation, oid=78)) == ()


def test_a_table_in_whose_place_another_one_came_is_nobodys(scene: Scene) -> None:
    looks = LastLooks(scene.source_tables, scene.context.targets_of)
    old, new = (dataclasses.replace(scene.table(scene.items).relation, oid=oid) for oid in (70, 71))
    for relation in (old, new, old, new):
        table = dataclasses.replace(scene.table(scene.items), relation=relation)
        looks.begin([(scene.items, table)], 500)
        assert looks.oids() == {"shop.items": relation.oid}
    renamed = dataclasses.replace(old, table=TableName(schema="public", name="items_old"))
    assert (looks.specs(renamed), looks.get(70)) == ((), None)


def test_the_last_look_counts_until_it_is_dropped(scene: Scene) -> None:
    looks = LastLooks(scene.source_tables, scene.context.targets_of)
    table = scene.table(scene.items)
    oid = table.relation.oid
    assert looks.get(oid) is None
    looks.begin([(scene.items, table)], 500)
    before, seen = looks.all(), Look(lsn=900, table=table)
    looks.put(scene.items, seen)
    assert looks.get(oid) is seen
    assert before[oid].lsn == 500, "what was asked for stays as it was"
    looks.drop(oid)
    looks.drop(oid)
    assert looks.get(oid) is None
    assert looks.specs(table.relation) == (scene.items,)


def test_what_another_server_showed_is_compared_with_but_proves_nothing(scene: Scene) -> None:
    looks = LastLooks(scene.source_tables, scene.context.targets_of)
    table = scene.table(scene.items)
    looks.begin([(scene.items, table)], 500)
    looks.distrust()
    assert looks.get(table.relation.oid) == Look(lsn=0, table=table)


def test_what_is_seen_for_one_route_counts_for_those_that_follow_only_if_it_is_what_they_know(scene: Scene) -> None:
    """Each follows its own table of the lake: a look at one leaves a change to the next message, and to all."""
    route = RouteConfig(by="kind", to="of_{kind}", allow=("a",), rest="other")
    config = scene.items.config.model_copy(update={"route": route})
    a, rest = (dataclasses.replace(scene.items, config=config, target=name) for name in ("of_a", "other"))
    scene.source_tables.source = dataclasses.replace(scene.source, tables=(a, rest))
    for spec in (a, rest):
        scene.shared.states.add(spec.identifier, "shop", "items")
        scene.shared.states.set(spec.identifier, "shop", State.STREAMING)
    looks, table = LastLooks(scene.source_tables, scene.context.targets_of), scene.table(scene.items)
    oid = table.relation.oid
    looks.begin([(a, table), (rest, table)], 500)
    assert looks.specs(table.relation) == (a, rest)
    assert looks.oids() == {"shop.of_a": oid, "shop.other": oid}
    looks.begin([(rest, table)], 600)
    assert looks.get(oid) == Look(lsn=600, table=table)
    columns = table.relation.columns
    now = dataclasses.replace(table, relation=dataclasses.replace(table.relation, columns=columns[:-1]))
    looks.begin([(rest, now)], 700)
    assert looks.get(oid) == Look(lsn=600, table=table), "the other has not gone along"
    looks.begin([(a, now), (rest, now)], 800)
    assert looks.get(oid) == Look(lsn=800, table=now)
    assert {spec.key for spec in looks.specs(table.relation)} == {a.key, rest.key}
