"""A table follows the columns of its sources, and sees what others do to them in the lake."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from kuvasz.errors import CopyNeeded, LakeError, OtherRule, SchemaAwaited, SchemaError, SchemaHeld
from kuvasz.evolve import column_notes
from kuvasz.evolve.column_numbers import Time
from kuvasz.evolve.column_numbers import number as numbered
from kuvasz.lake.executors.expressions import Projection
from kuvasz.lake.format import rule
from kuvasz.lake.format.schema_steps import AddField, RenameField
from kuvasz.model import Relation, TableType
from kuvasz.ports import Target
from tests.support.lake_columns import HERE, TARGET, Expressions, World, feed
from tests.support.source_table import INT, TEXT


@pytest.fixture
def world() -> World:
    return World()


def test_a_new_column_comes_with_what_is_remembered_of_it(world: World) -> None:
    earlier = world.source.catalog()
    before = world.columns.shapes.of(feed(), earlier)
    assert world.columns.shapes.of(feed(), earlier) is before
    number = world.source.add("size")
    with pytest.raises(SchemaError, match=r"source eu, table public\.items: .*size"):
        world.columns.check(feed(), world.source.catalog())
    world.iceberg.commits.clear()
    assert world.evolve(is_streaming=True)
    assert world.iceberg.commits == [("AddField",)], "schema and property in one commit"
    known = world.columns.known.get("eu")
    assert known.columns[number].field == world.definition.schema.by_name("size").field_id
    assert column_notes.render("eu", known).items() <= world.iceberg.properties.items()
    world.columns.check(feed(), world.source.catalog())
    after = world.columns.shapes.of(feed(), earlier)
    assert [one.name for one in after.bindings] == [*(one.name for one in before.bindings), "size"]


def test_rows_are_compared_by_the_map_alone_that_they_were_made_by(world: World) -> None:
    masked = dataclasses.replace(TARGET, mask={"name": "redact"})
    world.columns.check(feed(), world.source.catalog())
    world.columns.shapes.go_by("eu", masked)
    with pytest.raises(SchemaError, match=r"^source eu, table public\.items: `mask` of the map is another one than"):
        world.columns.check(feed(), world.source.catalog())
    world.evolve(mask={"name": "redact"})
    world.iceberg.properties |= world.columns.made_by("eu")  # as the copy that this asks for has it
    world.columns.check(feed(), world.source.catalog())
    world.columns.shapes.go_by("eu", TARGET)
    with pytest.raises(SchemaError, match="`mask` of the map"):
        world.columns.check(feed(), world.source.catalog())
    del world.iceberg.properties[rule.PREFIX + "eu"]
    world.columns.check(feed(), world.source.catalog())
    world.iceberg.properties[rule.PREFIX + "eu"] = rule.of(TARGET, {}, is_own_alone=True)
    world.columns.check(dataclasses.replace(feed(), is_own_alone=True), world.source.catalog())
    with pytest.raises(SchemaError, match="`origin` of the map"):
        world.columns.check(feed(), world.source.catalog())


def test_a_table_that_is_to_keep_deleted_rows_gets_a_column_for_when_once(world: World) -> None:
    world.iceberg.commits.clear()
    world.evolve(is_soft=True)
    world.evolve(is_soft=True)
    assert world.iceberg.commits == [("AddField",)]
    assert (world.definition.schema.fields[-1].name, world.iceberg.properties["kuvasz.deletes"]) == (
        "_deleted_at", "soft",
    )  # fmt: skip
    assert world.columns.shapes.of(feed(), world.source.catalog()).is_soft


def test_it_may_have_a_column_of_that_name_already(world: World) -> None:
    world.source.add("_deleted_at")
    world.evolve()
    with pytest.raises(SchemaError, match="it has a column _deleted_at that is not kuvasz's"):
        world.evolve(is_soft=True)


def test_a_column_by_a_name_of_the_partitions_is_refused_before_anything_is_done(world: World) -> None:
    world.iceberg.partitions = frozenset({("at_day", 1)})
    world.iceberg.commits.clear()
    world.source.add("at_day")
    with pytest.raises(SchemaError, match=r"^source eu, table public\.items: shop\.items is or was partitioned by"):
        world.evolve(is_streaming=True)
    assert not world.iceberg.commits
    assert world.evolve(exclude=frozenset({"at_day"})) == ()


def test_what_is_the_same_costs_no_commit(world: World) -> None:
    world.iceberg.commits.clear()
    assert world.evolve() == ()
    assert world.evolve(is_streaming=True) == ()
    assert not world.iceberg.commits


def test_columns_are_read_from_the_table_again(world: World) -> None:
    assert world.read().known.get("eu") == world.columns.known.get("eu")
    world.columns.forget("eu")
    assert world.columns.known.get("eu") is None
    world.columns.forget("eu")


@pytest.mark.parametrize(("asked", "error"), [("hold", SchemaHeld), ("stop", SchemaError)])
def test_the_map_may_forbid_to_follow(world: World, asked: str, error: type[SchemaError]) -> None:
    world.source.add("size")
    with pytest.raises(SchemaError) as caught:
        world.evolve(on_schema_change=asked)
    assert type(caught.value) is error
    assert f"`on_schema_change: {asked}`" in caught.value.hint
    assert world.definition.schema.by_name("size") is None


def with_another(world: World) -> World:
    """Have a second source fill the same columns."""
    world.evolve("us")
    world.positions["us"] = HERE
    world.iceberg.properties |= world.columns.made_by("us")
    return world


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_name_that_others_go_on_with_waits_for_them_or_for_a_person(world: World, is_streaming: bool) -> None:
    with_another(world).source.alter(world.source.number("n"), name="m")
    for columns in (world.columns, world.read()):  # also after a restart
        world.columns = columns
        world.iceberg.commits.clear()
        with pytest.raises(SchemaAwaited, match=r"n was renamed to m.*, but us has not done the same") as caught:
            world.evolve(on_schema_change="agree", is_streaming=is_streaming)
        assert "kuvasz retry --table shop.items" in caught.value.hint
        assert not world.iceberg.commits
    assert world.evolve("us", on_schema_change="agree")
    assert [field.name for field in world.iceberg.now.fields] == ["id", "m", "name"]
    assert world.evolve(on_schema_change="agree") == ("column n was renamed to m: the lake has that name already",)


def test_a_type_that_others_do_not_have_waits_for_them(world: World) -> None:
    with_another(world).source.alter(world.source.number("n"), pg_type=TEXT)
    world.source.rewrite()
    with pytest.raises(SchemaAwaited, match="but us has not done the same"):
        world.evolve(on_schema_change="agree")
    assert world.evolve()
    assert "n__old" in [field.name for field in world.iceberg.now.fields]


def test_what_concerns_a_source_alone_waits_for_nobody(world: World) -> None:
    with_another(world).source.add("size")
    world.evolve(on_schema_change="agree")
    world.source.alter(world.source.number("size"), name="extent")
    world.evolve(on_schema_change="agree")
    world.source.drop(world.source.number("n"))
    world.evolve(on_schema_change="agree")
    assert [field.name for field in world.iceberg.now.fields] == ["id", "n", "name", "extent"]


def test_what_needs_a_copy_is_not_done_while_it_streams(world: World) -> None:
    world.source.alter(world.source.number("n"), pg_type=TEXT)
    world.source.rewrite()
    world.iceberg.commits.clear()
    with pytest.raises(CopyNeeded):
        world.evolve(is_streaming=True)
    assert (world.forgotten, world.iceberg.commits) == ([], [])
    done = world.evolve()
    assert done[-1].startswith("its rows are copied again")
    assert world.forgotten == ["eu"]


def test_another_key_is_taken_over(world: World) -> None:
    world.source.alter(world.source.number("id"), is_key=False)
    world.source.alter(world.source.number("n"), is_key=True)
    world.evolve()
    assert world.definition.key == ("n",)
    assert json.loads(world.iceberg.properties["kuvasz.key"]) == ["n"]


def test_a_key_that_was_made_again_has_the_rows_copied_once(world: World) -> None:
    world.source.rekey()
    with pytest.raises(CopyNeeded, match="column id was made a key anew: while there was none, several rows"):
        world.evolve(is_streaming=True)
    with pytest.raises(SchemaError, match="column id was made a key anew"):
        world.columns.check(feed(), world.source.catalog())
    assert world.evolve()[-1].startswith("its rows are copied again: column id was made a key anew")
    assert world.forgotten == ["eu"]
    assert world.read().known.get("eu").uniqueness == world.source.uniqueness
    assert world.evolve() == ()


def test_a_key_that_was_made_again_stops_what_finds_versions_by_it(world: World) -> None:
    world.source.rekey()
    with pytest.raises(SchemaError, match=r"made a key anew.* rows are identified by it") as caught:
        world.evolve(type=TableType.HISTORY, is_streaming=True)
    assert caught.value.hint.startswith("kuvasz resync --table shop.items")
    # Of these every row stands for itself.
    assert world.evolve(type=TableType.APPEND, is_streaming=True)[-1].startswith(
        "rows that are there stay as they are"
    )
    assert world.forgotten == []


def test_a_source_that_streams_does_not_guess_what_another_one_wants(world: World) -> None:
    world.iceberg.take(RenameField("n", "m"))
    with pytest.raises(SchemaError, match="column n was renamed to m in the lake by someone else") as caught:
        world.evolve()
    assert caught.value.hint.startswith("give it its name back, and then: kuvasz retry --table shop.items; or copy")
    with pytest.raises(SchemaError, match="column n was renamed to m"):
        world.columns.follow()


@pytest.mark.parametrize("begin", [World.evolve, lambda world: world.columns.follow()], ids=("evolve", "follow"))
def test_a_name_whose_commit_was_not_answered_is_our_own(
    world: World, monkeypatch: pytest.MonkeyPatch, begin: Callable[[World], object]
) -> None:
    change = world.iceberg.change

    def unanswered(*arguments: Any) -> None:
        change(*arguments)
        raise LakeError("the catalog does not answer", hint="it is tried again")

    world.source.alter(world.source.number("n"), name="m")
    with monkeypatch.context() as patched:
        patched.setattr(world.iceberg, "change", unanswered)
        with pytest.raises(LakeError, match="does not answer"):
            world.evolve()
    begin(world)
    assert world.evolve() == ()
    assert [column.name for column in world.columns.known.get("eu").live.values()] == ["id", "m", "name"]
    assert world.definition.schema.by_name("m") is not None


def test_a_source_that_is_copied_gets_its_names_back(world: World) -> None:
    world.positions.clear()
    world.iceberg.take(RenameField("n", "m"))
    assert world.evolve() == ("column m of the lake is named n again",)
    assert world.definition.schema.by_name("n") is not None


def test_a_column_of_ours_that_was_dropped_is_told(world: World) -> None:
    world.iceberg.drop("n")
    with pytest.raises(SchemaError, match="column n was dropped in the lake by someone else") as caught:
        world.columns.follow()
    assert caught.value.hint == "copy the table again: kuvasz resync --table shop.items"


def test_a_name_that_was_dropped_in_the_lake_is_not_filled_again(world: World) -> None:
    world.source.add("size")
    world.iceberg.earlier["size"] = None
    with pytest.raises(SchemaError, match="column size was dropped in the lake") as caught:
        world.evolve(is_streaming=True)
    assert caught.value.hint.startswith("added anew it would be empty")


def test_columns_that_others_add_are_taken_over(world: World) -> None:
    extra = dataclasses.replace(world.iceberg.now.fields[-1], name="theirs", required=False)
    world.iceberg.take(AddField(extra))
    world.columns.follow()
    assert world.definition.schema.by_name("theirs") is not None


def test_several_sources_fill_the_same_fields(world: World) -> None:
    assert world.evolve("us") == ()
    fields = {source: world.columns.known.get(source).fields for source in ("eu", "us")}
    assert fields["eu"] == fields["us"]
    world.source.drop(world.source.number("n"))
    world.source.add("n", TEXT)
    world.evolve("us")
    assert world.columns.known.get("eu").fields == fields["eu"], "the other source goes on as it was"


class Reading(Expressions):
    """A map whose filter looks at the column n, or at m if its text names that."""

    def project(self, target: Target, relation: Relation, place: str, key: tuple[str, ...]) -> Projection:
        plain = super().project(target, relation, place, key)
        reads = () if target.filter is None else ("m",) if "m" in target.filter else ("n",)
        return dataclasses.replace(plain, reads=reads)


def follow(world: World, *, is_streaming: bool = False, **changed: object) -> tuple[str, ...]:
    """Evolve with another map, which the table has from its start on."""
    world.definition.target = dataclasses.replace(TARGET, **changed)
    return world.evolve(is_streaming=is_streaming, **changed)


@pytest.fixture
def reading(world: World) -> World:
    world.columns.shapes._expressions = Reading()
    world.source.add("m", INT)
    del world.iceberg.properties[rule.PREFIX + "eu"]
    follow(world, filter="n > 5")
    assert world.columns.known.get("eu").reads == {"n": 2}
    return world


def swap(world: World) -> None:
    number = world.source.number("m")
    world.source.alter(2, name="m")
    world.source.alter(number, name="n")


def test_a_name_that_means_another_column_to_the_filter_has_a_clone_copied(reading: World) -> None:
    swap(reading)
    with pytest.raises(CopyNeeded, match="n in the map's expressions names another column than before"):
        follow(reading, is_streaming=True, filter="n > 5")
    told = follow(reading, filter="n > 5")
    assert reading.forgotten == ["eu"]
    assert "its rows are copied again" in told[-1]
    follow(reading, is_streaming=True, filter="n > 5")
    assert reading.forgotten == ["eu"]


@pytest.mark.parametrize("table_type", [TableType.APPEND, TableType.CHANGELOG, TableType.HISTORY])
def test_what_keeps_the_past_stops_until_the_map_goes_by_the_names_of_now(
    reading: World, table_type: TableType
) -> None:
    swap(reading)
    with pytest.raises(SchemaError, match="names another column than before") as caught:
        follow(reading, filter="n > 5", type=table_type)
    assert not isinstance(caught.value, CopyNeeded)
    assert "kuvasz resync --table shop.items" in str(caught.value.hint)
    follow(reading, filter="m > 5", type=table_type)
    assert reading.columns.known.get("eu").reads == {"m": 2}
    assert reading.forgotten == []


def test_a_filter_that_goes_by_a_new_name_from_the_start_is_no_change(reading: World) -> None:
    reading.source.alter(2, name="m2")
    reading.source.alter(reading.source.number("m"), name="old")
    reading.source.alter(2, name="m")
    assert "its rows are copied again" not in str(follow(reading, filter="m > 5"))
    assert reading.columns.known.get("eu").reads == {"m": 2}


def test_another_filter_has_a_clone_copied_and_what_keeps_the_past_stop(reading: World) -> None:
    why = "`filter` of the map is another one than the one that its rows were made by"
    assert follow(reading, is_streaming=True, filter="n > 6") == (), "the map does not change while it streams"
    with pytest.raises(OtherRule, match=why):
        follow(reading, filter="n > 6", type=TableType.APPEND)
    assert follow(reading, filter="n > 6") == (f"its rows are copied again: {why}",)
    assert reading.forgotten == ["eu"]
    now = "kuvasz.rule.eu", reading.columns.made_by("eu")["kuvasz.rule.eu"]
    assert now not in reading.iceberg.properties.items(), "a copy brings it"


def test_properties_that_do_not_say_what_was_read_go_by_the_names_of_then(reading: World) -> None:
    known = dataclasses.replace(reading.columns.known.get("eu"), reads={}, expressions="")
    reading.columns.known["eu"] = known
    assert follow(reading, is_streaming=True, filter="n > 5") == ()
    reading.columns.known["eu"] = known
    swap(reading)
    with pytest.raises(CopyNeeded):
        follow(reading, is_streaming=True, filter="n > 5")


def test_rows_of_a_backlog_are_seen_by_the_names_of_now(reading: World) -> None:
    before = reading.source.catalog()
    reading.source.alter(2, name="size")
    follow(reading, filter="m > 5")
    seen: list[tuple[str, ...]] = []
    reading.definition.target = dataclasses.replace(TARGET, filter="m > 5")

    class Watching(Reading):
        def project(self, target: Target, relation: Relation, place: str, key: tuple[str, ...]) -> Projection:
            seen.append(tuple(column.name for column in relation.columns))
            return super().project(target, relation, place, key)

    reading.columns.shapes._expressions = Watching()
    reading.columns.shapes.of(feed(), dataclasses.replace(before, attributes=0))
    assert seen == [("id", "size", "name", "m")]


class Keyed(Expressions):
    """A map whose `key` says what identifies a row, but where the stream calls every column a key."""

    def project(self, target: Target, relation: Relation, place: str, key: tuple[str, ...] | None) -> Projection:
        key = key if key is not None else target.key or ("id",)
        columns = tuple(dataclasses.replace(column, is_key=column.name in key) for column in relation.columns)
        return super().project(target, dataclasses.replace(relation, columns=columns), place, key)


AS_IT_IS = {"set": {"id": "id", "n": "n", "name": "name"}}


@pytest.fixture
def keyed(world: World) -> World:
    world.columns.shapes._expressions = Keyed()
    del world.iceberg.properties[rule.PREFIX + "eu"]
    assert follow(world, **AS_IT_IS) == follow(world, **AS_IT_IS, key=("id",)) == ()
    return world


def test_another_key_of_the_map_has_a_clone_copied_again_by_it(keyed: World) -> None:
    told = follow(keyed, **AS_IT_IS, key=("n", "id"))
    assert told == ("the key is (id, n) now", "its rows are copied again: the key was changed")
    assert (keyed.forgotten, set(keyed.definition.key)) == (["eu"], {"id", "n"})
    assert follow(keyed, **AS_IT_IS, key=("n", "id")) == (), "it is the key now"


@pytest.mark.parametrize("kind", [TableType.APPEND, TableType.CHANGELOG, TableType.HISTORY])
def test_another_key_of_the_map_stops_what_is_not_copied_again(keyed: World, kind: TableType) -> None:
    with pytest.raises(SchemaError, match=rf"the key is \(n\) now, and a table of type {kind}") as caught:
        follow(keyed, **AS_IT_IS, key=("n",), type=kind)
    assert caught.value.hint == "change the key back, or choose another `target`"
    assert keyed.definition.key == ("id",)


def test_a_masked_column_is_looked_for_as_what_the_source_has_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the lake it is a text. Who took a number's messages for it would take them for those of another column."""

    def masked(_: object, target: object, relation: Relation, *__: object) -> Projection:
        columns = tuple(dataclasses.replace(c, pg_type=TEXT) if c.name == "n" else c for c in relation.columns)
        view = dataclasses.replace(relation, columns=columns)
        return Projection(relation=view, columns=tuple(range(len(columns))), transform=None)

    monkeypatch.setattr(Expressions, "project", masked)
    source = world.source
    source.alter(3, name="x", pg_type=INT)
    source.lsn += 10
    world.evolve()
    message = source.message()
    lsn, xid = source.begin()
    source.drop(2)
    source.alter(3, name="y")
    source.add("z")
    known = world.columns.known["eu"]
    answer = numbered(message, known.history(source.catalog()), Time.of(lsn, xid))
    assert answer.relation is None, [column.attnum for column in answer.relation.columns]
    assert answer.is_open, "the messages may be of those columns, or of others"
