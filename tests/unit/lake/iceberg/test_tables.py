"""The lake's tables: loaded, made where they are missing, and tried again after they failed."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import LakeError, LateCommit, SchemaError, TableGone, TableStuck, TableTaken
from kuvasz.lake.iceberg import tables as tables_module
from kuvasz.lake.iceberg.tables import Tables, read_index
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import TableType
from kuvasz.state.lakes.memory import MemoryTableOwners
from kuvasz.state.lakes.ports import LakeTablePlace
from kuvasz.state.store import state_of
from tests.support.changes import ITEMS, TARGET, feed, target
from tests.support.local_lake import LocalWorld


@pytest.fixture
def tables(local_world: LocalWorld) -> Tables:
    return local_world.lake._tables


def fail(tables: Tables, error: Exception) -> None:
    tables[TARGET].era = WriteEra(accepted={}, error=error)  # type: ignore[arg-type]


def test_a_table_that_is_missing_is_made_as_the_map_says(local_world: LocalWorld, tables: Tables) -> None:
    wanted = dataclasses.replace(target(), partition_by=("bucket(4, id)",), sort_by=("n",))
    tables.prepare(wanted, feed(), ITEMS)
    now = local_world.stored().now
    assert [field.name for field in now.schema.fields] == ["sid", "id", "n", "body"]
    assert [term.render() for term in now.layout.partition] == ["bucket[4]"]
    assert now.properties["write.merge.mode"] == "merge-on-read"
    full = {name for name in now.properties if name.startswith("write.metadata.metrics.column.")}
    assert full == {f"write.metadata.metrics.column.{name}" for name in ("sid", "id")}


def test_a_table_is_loaded_once(local_world: LocalWorld, tables: Tables) -> None:
    first = tables.prepare(target(), feed(), ITEMS)
    assert tables.prepare(target(), feed("us"), ITEMS) is first
    assert tables.all() == [first]
    assert tables.get("shop.nowhere") is None


def test_columns_that_no_lake_can_hold_make_no_table(local_world: LocalWorld, tables: Tables) -> None:
    with pytest.raises(SchemaError):
        tables.prepare(dataclasses.replace(target(), sort_by=("nowhere",)), feed(), ITEMS)
    assert local_world.catalog.stored == {}


def test_a_table_that_someone_dropped_is_made_anew(local_world: LocalWorld, tables: Tables) -> None:
    first = tables.prepare(target(), feed(), ITEMS)
    local_world.catalog.drop(TARGET)
    fail(tables, TableGone("someone dropped it"))
    second = tables.prepare(target(), feed(), ITEMS)
    assert second is not first
    assert second.definition.uuid != first.definition.uuid


def test_a_table_that_is_missing_is_asked_for_once_by_all_who_attach(
    local_world: LocalWorld, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    load = local_world.catalog.load
    monkeypatch.setattr(local_world.catalog, "load", lambda name: asked.append(name) or load(name))
    assert not any(tables.attach(target(), feed(source)) for source in ("eu", "us", "asia"))
    assert tables.recorded(TARGET) == {}
    assert asked == [TARGET]
    tables.prepare(target(), feed(), ITEMS)
    assert asked == [TARGET] * 2, "who makes it looks again"
    assert tables.attach(target(), feed("us"))
    tables.loaded.clear()
    assert tables.stored(TARGET) == {}
    assert len(asked) == 3, "and so does who must know"


def test_what_is_attached_must_be_there(local_world: LocalWorld, tables: Tables) -> None:
    assert not tables.attach(target(), feed())
    local_world.prepare("eu")
    again = local_world.begin(local_world.catalog)._tables
    assert again.attach(target(), feed())
    assert again[TARGET].positions.keys() == {"eu"}


def test_an_index_is_read_ahead_once_for_all_who_ask(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_world.prepare("eu")
    again = local_world.begin(local_world.catalog)._tables
    assert again.attach(target(), feed())
    ahead: list[Callable[[], object]] = []
    monkeypatch.setattr(again._engine, "pool", SimpleNamespace(submit=ahead.append))
    again.read_index_ahead(again[TARGET])
    again.read_index_ahead(again[TARGET])
    (read,) = ahead
    read()
    assert again[TARGET].index.is_open
    again[TARGET].index.reset()
    again.read_index_ahead(again[TARGET])
    assert len(ahead) == 2, "it is read again if it was let go of"


@pytest.mark.parametrize("answers", [True, False])
def test_a_table_that_was_refused_is_proved_before_it_goes_on(
    local_world: LocalWorld, tables: Tables, *, answers: bool
) -> None:
    tables.prepare(target(), feed(), ITEMS)
    fail(tables, LakeError("the store is full"))
    if answers:
        assert tables.prepare(target(), feed(), ITEMS) is tables[TARGET]
        assert "kuvasz.proof" in local_world.stored().now.properties
        return
    local_world.catalog.is_down = True
    with pytest.raises(TableStuck, match="the catalog does not answer"):
        tables.prepare(target(), feed(), ITEMS)
    local_world.catalog.is_down = False


@pytest.mark.parametrize("error", [LateCommit("it is further"), SchemaError("not the store's fault"), None])
def test_one_that_failed_for_another_reason_is_not(
    local_world: LocalWorld, tables: Tables, error: Exception | None
) -> None:
    tables.prepare(target(), feed(), ITEMS)
    if error is not None:
        fail(tables, error)
    tables.prepare(target(), feed(), ITEMS)
    assert "kuvasz.proof" not in local_world.stored().now.properties


def test_a_store_that_never_answers_is_not_waited_for(
    local_world: LocalWorld, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.prepare(target(), feed(), ITEMS)
    fail(tables, LakeError("the store hangs"))
    go_on = threading.Event()
    monkeypatch.setattr(tables_module, "_TRIAL_S", 0.01)
    monkeypatch.setattr(tables[TARGET], "prove", lambda: go_on.wait(30))
    with pytest.raises(TableStuck) as caught:
        tables.prepare(target(), feed(), ITEMS)
    go_on.set()
    assert caught.value.message == f"table {TARGET}: catalog or store have not answered for 0.01 s"


def test_positions_are_told_as_this_process_or_the_catalog_has_them(local_world: LocalWorld, tables: Tables) -> None:
    local_world.prepare("eu")
    assert tables.recorded(TARGET).keys() == tables.stored(TARGET).keys() == {"eu"}
    tables[TARGET].positions.clear()
    assert tables.recorded(TARGET) == {}
    assert tables.stored(TARGET).keys() == {"eu"}
    assert tables.recorded("shop.nowhere") == tables.stored("shop.nowhere") == {}


def test_a_position_is_forgotten_in_a_table_that_nobody_loaded(local_world: LocalWorld) -> None:
    local_world.prepare("eu", "us")
    tables = local_world.begin(local_world.catalog)._tables
    tables.forget_position(TARGET, "eu", to_repair=False, is_gone=False)
    assert tables.stored(TARGET).keys() == {"us"}
    witness = state_of(local_world.config).witness
    assert witness.given_up(TARGET).keys() == {"eu"}
    assert witness.known(TARGET).keys() == {"us"}


def test_to_forget_one_of_a_table_that_was_dropped_says_so(local_world: LocalWorld, tables: Tables) -> None:
    local_world.prepare("eu")
    local_world.catalog.drop(TARGET)
    with pytest.raises(TableGone):
        tables.forget_position(TARGET, "eu", to_repair=False, is_gone=False)
    assert isinstance(tables[TARGET].era.error, TableGone)
    tables.forget_position("shop.nowhere", "eu", to_repair=False, is_gone=False)


def test_an_index_that_cannot_be_read_ahead_is_told_by_the_first_changes(
    local_world: LocalWorld, tables: Tables
) -> None:
    local_world.prepare("eu")
    local_world.catalog.is_down = True
    read_index(tables[TARGET])
    local_world.catalog.is_down = False
    read_index(tables[TARGET])
    assert tables[TARGET].index.is_open


def test_a_table_that_keeps_several_rows_of_a_key_has_none_for_readers(local_world: LocalWorld) -> None:
    """Readers take identifier fields for a promise that no two rows are alike in them."""
    seen: list[tuple[str, ...]] = []
    create = local_world.catalog.create

    def note(name: str, fields, key, *rest):
        seen.append(tuple(key))
        return create(name, fields, key, *rest)

    local_world.catalog.create = note  # type: ignore[method-assign]
    for number, table_type in enumerate((TableType.CLONE, TableType.APPEND, TableType.HISTORY)):
        name = f"shop.t{number}"
        local_world.lake.prepare(target(name, table_type=table_type), feed(name=name), ITEMS)
    assert seen == [("sid", "id"), (), ()]


class Closing:
    """Has another one loaded while it is closed."""

    def __init__(self, loaded: dict[str, Any]) -> None:
        self.loaded = loaded
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        self.loaded[f"shop.t{len(self.loaded)}"] = self


def test_what_a_look_under_way_was_told_of_a_table_is_let_go_of_with_it() -> None:
    """Another process may know more of it when it comes back."""
    told: list[str] = []
    nobody: Any = None
    witness: Any = SimpleNamespace(known=lambda name: told.append("known"), let_go=lambda name: told.append("let go"))
    tables = Tables(nobody, nobody, witness)
    tables.loaded[TARGET] = SimpleNamespace(close=lambda: witness.known(TARGET))  # type: ignore[assignment]
    tables.let_go(TARGET)
    assert told == ["known", "let go"]


def test_tables_are_closed_while_others_are_loaded() -> None:
    nobody: Any = None
    tables = Tables(nobody, nobody, nobody)
    loaded: dict[str, Any] = tables.loaded
    made = [Closing(loaded), Closing(loaded)]
    loaded.update({"shop.a": made[0], "shop.b": made[1]})
    tables.close()
    assert all(table.is_closed for table in made)


@pytest.mark.parametrize(
    "asked",
    [
        lambda blue: blue.prepare(target(), feed(), ITEMS),
        lambda blue: blue.attach(target(), feed()),
        lambda blue: blue.recorded(TARGET),
        lambda blue: blue.forget_position(TARGET, "eu", to_repair=False, is_gone=False),
    ],
)
def test_a_table_of_another_group_is_neither_read_nor_changed(
    local_world: LocalWorld, asked: Callable[[Tables], object]
) -> None:
    """A group of the log that was given the first one's lake would else drop its positions, to copy all anew."""
    local_world.prepare("eu")
    known: dict[tuple[str | None, str], LakeTablePlace] = {}
    state = state_of(local_world.config)
    first, blue = (
        Tables(local_world.config, local_world.lake.engine, state.witness, MemoryTableOwners(group, known))
        for group in (None, "blue")
    )
    assert first.recorded(TARGET).keys() == {"eu"}
    before = local_world.stored().now
    with pytest.raises(TableTaken):
        asked(blue)
    assert local_world.stored().now is before
    assert blue.all() == []


def test_nothing_is_made_where_another_group_has_a_table(local_world: LocalWorld) -> None:
    place = local_world.config.lake.default_location(TARGET)
    known = {(None, "old.items"): LakeTablePlace(target="old.items", uuid="1", place=place)}
    owners = MemoryTableOwners("blue", known)
    blue = Tables(local_world.config, local_world.lake.engine, state_of(local_world.config).witness, owners)
    with pytest.raises(TableTaken, match=r"whose table old\.items"):
        blue.prepare(target(), feed(), ITEMS)
    assert local_world.catalog.stored == {}
    known.clear()
    blue.prepare(target(), feed(), ITEMS)
    assert known["blue", TARGET].uuid == blue[TARGET].definition.uuid
