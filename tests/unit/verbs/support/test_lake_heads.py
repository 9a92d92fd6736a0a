"""Heads of tables: what is chosen by name, and nothing that may be a value, a secret, or a help to guess at one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from kuvasz.config.model import Config
from kuvasz.errors import LakeError
from kuvasz.lake.format import rule, source_positions, table_identity
from kuvasz.model import SourcePosition
from kuvasz.verbs.catalogs import pyiceberg_catalog
from kuvasz.verbs.support import lake_heads
from tests.support.maps import SHOP, loaded

MAP = "lake: {{uri: 'jdbc:sqlite:{0}/catalog.db', warehouse: '{0}/wh', namespace: shop}}\n" + SHOP.replace(
    "{", "{{"
).replace("}", "}}")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loaded(tmp_path, MAP.format(tmp_path)).config


ROWS = pa.table({"id": [1, 2], "body": ["a value", "another value"]})


def make(config: Config, properties: dict[str, str]) -> Table:
    options = pyiceberg_catalog.catalog_properties(config.lake) | {"init_catalog_tables": "true"}
    catalog = SqlCatalog(config.lake.name, **options)
    catalog.create_namespace("shop")
    return catalog.create_table("shop.orders", ROWS.schema, properties=properties)


def test_a_head_has_counts_schema_and_notes_and_no_value(config: Config) -> None:
    properties = {
        table_identity.SEED_PROPERTY: "of hashes", rule.PREFIX + "shop_eu": "of a secret", "of.others": "a value",
        table_identity.TYPE_PROPERTY: "clone", "write.format.default": "parquet",
        source_positions.PREFIX + "shop_eu": source_positions.render(SourcePosition(lsn=0x100)),
    }  # fmt: skip
    summary = {"partitions.body=a value": "1", "of.others": "a value", "added-x": "a value"}
    make(config, properties).append(ROWS, snapshot_properties=summary)
    (heads,) = lake_heads.gather(config, 30).files.values()
    assert not {text for text in ("value", "of hashes", "of a secret") if text in json.dumps(heads)}
    head = heads["shop.orders"]
    assert [(column["name"], column["type"]) for column in head["schema"]] == [("id", "long"), ("body", "string")]
    assert head["manifests"]["data"]["files"] == 1
    assert head["snapshot"]["summary"]["operation"] == "append"
    assert head["snapshot"]["summary"]["added-records"] == "2"
    assert head["properties"]["kuvasz.type"] == "clone"
    assert head["properties"]["kuvasz.seed"] == "9 characters"
    assert head["properties"]["write.format.default"] == "parquet"
    (note,) = head["notes"]
    assert (note["source"], note["position"]["lsn"]) == ("shop_eu", "0/100")
    assert "rule" not in note


def test_a_table_that_is_not_there_or_cannot_be_read_is_told(config: Config, tmp_path: Path) -> None:
    assert lake_heads.gather(config, 30).files == {"tables.json": {"shop.orders": None}}
    assert not (tmp_path / "catalog.db").exists()
    table = make(config, {})
    Path(table.metadata_location.removeprefix("file://")).unlink()
    found = lake_heads.gather(config, 30)
    assert found.notes == ("1 of 1 tables cannot be read",)
    assert "the catalog cannot be read" in found.files["tables.json"]["shop.orders"]["error"]


def test_a_catalog_that_cannot_be_opened_is_an_error(config: Config, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("no database")
    with pytest.raises(LakeError, match="cannot be opened"):
        lake_heads.gather(config, 30)
