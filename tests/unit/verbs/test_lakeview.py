"""The lake as a reader sees it, in a catalog file of the test's own; nothing is made by being looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import LakeError, SchemaError
from kuvasz.lake.format import rule, source_positions, table_identity
from kuvasz.model import SourcePosition
from kuvasz.state.ports import Note
from kuvasz.state.store import state_of
from kuvasz.verbs import lakeview
from kuvasz.verbs.catalogs import pyiceberg_catalog
from kuvasz.verbs.lakeview import LakeTableView, LakeView
from tests.support.lake_table import schema

HERE = SourcePosition(lsn=0x100)


def config(folder: Path, **lake: Any) -> Config:
    file = folder / "map.yaml"
    given = {"warehouse": str(folder / "wh"), "uri": f"jdbc:sqlite:{folder}/catalog.db", "namespace": "shop", **lake}
    database = {"database": "shop", "urls": [{"url": "postgresql:///none"}], "tables": {"items": None}}
    state = {"state": str(folder / "state")}
    file.write_text(json.dumps({"lake": given, "pipeline": state, "databases": [database]}))
    return load(file, {}).config


def make(found: Config, **properties: str) -> None:
    """Make a table as a running kuvasz would leave it."""
    options = pyiceberg_catalog.catalog_properties(found.lake) | {"init_catalog_tables": "true"}
    catalog = SqlCatalog(found.lake.name, **options)
    catalog.create_namespace("shop")
    arrow = schema((1, "id", "long"), (2, "body", "string")).arrow()
    catalog.create_table("shop.items", arrow, properties=properties)


def test_where_nothing_was_made_nothing_is_seen_and_nothing_made(tmp_path: Path) -> None:
    found = config(tmp_path)
    assert LakeView(found).table("shop.items") is None
    assert lakeview.prove_catalog(found) == "to be made"
    assert lakeview.prove_warehouse(found) == "to be made"
    assert not (tmp_path / "catalog.db").exists()
    assert not (tmp_path / "wh").exists()


def test_a_table_is_seen_with_what_kuvasz_noted_in_it(tmp_path: Path) -> None:
    found = config(tmp_path)
    noted = {source_positions.PREFIX + "eu": source_positions.render(HERE), rule.PREFIX + "eu": "a1"}
    make(found, **noted)
    view = LakeView(found)
    seen = view.table("shop.items")
    assert seen is not None
    assert dict(seen.columns) == {"id": "long", "body": "string"}
    assert (seen.positions, seen.rules, seen.oids) == ({"eu": HERE}, {"eu": "a1"}, {})
    assert (view.table("shop.nowhere"), view.table("nowhere.items")) == (None, None)
    assert lakeview.prove_catalog(found) == "an answer"
    assert lakeview.positions_in(seen) == {"eu": HERE}
    assert lakeview.positions_in(None) == {}


def test_what_was_noted_and_is_damaged_is_told(tmp_path: Path) -> None:
    found = config(tmp_path)
    make(found, **{source_positions.PREFIX + "eu": "nonsense"})
    with pytest.raises((LakeError, SchemaError)):
        LakeView(found).table("shop.items")


def test_a_file_that_is_no_catalog_is_told(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("not a database, and longer than a header of one would be " * 9)
    with pytest.raises(LakeError) as caught:
        lakeview.prove_catalog(config(tmp_path))
    assert caught.value.message == "the catalog cannot be opened: file is not a database"


def test_a_catalog_without_its_tables_is_still_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").touch()
    found = config(tmp_path)
    assert lakeview.prove_catalog(found) == "to be made"
    assert LakeView(found).table("shop.items") is None


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakeview.os, "access", lambda *_: False)
    for prove in (lakeview.prove_catalog, lakeview.prove_warehouse):
        with pytest.raises(LakeError, match=f"{tmp_path} is not writable"):
            prove(config(tmp_path))


def test_a_warehouse_that_is_there_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "wh").mkdir()
    assert lakeview.prove_warehouse(config(tmp_path)) == "written and removed"
    assert list((tmp_path / "wh").iterdir()) == []


def test_what_is_to_be_copied_again_has_no_position_at_the_next_start(tmp_path: Path) -> None:
    found = config(tmp_path)
    due, paused = Note(is_resync_due=True), Note(is_resync_due=True, paused_at=5.0)
    (tmp_path / "state").mkdir()
    with state_of(found).own("tests"):
        state_of(found).notes.put({("shop.items", "eu"): due, ("shop.items", "us"): paused})
    view = LakeTableView(columns={}, positions={"eu": HERE, "us": HERE, "ap": HERE})
    tables = lakeview.without_due(found, {"shop.items": view, "shop.others": None})
    seen = tables["shop.items"]
    assert seen is not None
    assert seen.positions.keys() == {"us", "ap"}
    assert tables["shop.others"] is None


def test_the_snapshots_of_a_table_are_seen_with_the_positions_in_them(tmp_path: Path) -> None:
    found = config(tmp_path)
    assert LakeView(found).lineage("shop.items") is None
    noted = {source_positions.PREFIX + "eu": source_positions.render(HERE)}
    make(found, **noted, **{table_identity.TYPE_PROPERTY: "history"})
    table = SqlCatalog(found.lake.name, **pyiceberg_catalog.catalog_properties(found.lake)).load_table("shop.items")
    table.append(schema((1, "id", "long"), (2, "body", "string")).arrow().empty_table(), noted | {"other": "x"})
    seen = LakeView(found).lineage("shop.items")
    assert seen is not None
    (step,) = seen.lineage.steps
    assert (step.snapshot.positions, seen.lineage.positions) == ({"eu": HERE}, {"eu": HERE})
    assert seen.type == "history"
    assert seen.metadata_location.startswith(f"file://{tmp_path}/wh/")
    assert seen.metadata_location.endswith(".metadata.json")
    with table.transaction() as transaction:  # so that the snapshot is of a table that was no history
        transaction.set_properties({table_identity.REMADE_PROPERTY: str(step.snapshot.id)})
    seen = LakeView(found).lineage("shop.items")
    assert seen is not None
    assert (seen.lineage.steps, seen.lineage.positions) == ((), {"eu": HERE})
