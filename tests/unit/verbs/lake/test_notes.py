"""Notes of a lake's tables as a person reads them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kuvasz import lsn
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.evolve import column_notes, known
from kuvasz.lake.format import rule, source_positions
from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition
from kuvasz.verbs.catalogs import pyiceberg_catalog
from kuvasz.verbs.lake import notes
from tests.support import earlier_notes
from tests.support.lake_table import schema
from tests.support.source_table import SourceTable

EU = SourcePosition(
    lsn=0x1_2DFB_96A1, commit_lsn=0x1_2DFB_9500, rows=3, system_id="7361234567890123456", history=1, xid=742_817,
    commit_us=-POSTGRES_EPOCH_US + 1_000_000,
)  # fmt: skip

US = SourcePosition(lsn=0x100)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    urls = [{"url": f"postgresql:///{sid}", "sid": sid} for sid in ("eu", "us")]
    document = {
        "lake": {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/wh", "namespace": "shop"},
        "databases": [{"database": "shop", "urls": urls, "tables": {"items": None, "others": None}}],
    }
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps(document))
    return load(file, {}).config


def make(config: Config, properties: dict[str, str]) -> None:
    options = pyiceberg_catalog.catalog_properties(config.lake) | {"init_catalog_tables": "true"}
    catalog = SqlCatalog(config.lake.name, **options)
    catalog.create_namespace("shop")
    catalog.create_table("shop.items", schema((1, "id", "long")).arrow(), properties=properties)


def noted() -> dict[str, str]:
    """Two sources, one of them as the version before noted it."""
    table = SourceTable()
    before = known.of(table.catalog(), {1: 1, 2: 2, 3: 3})
    table.alter(2, name="m", typmod=8)
    table.drop(3)
    table.lsn += 16
    renamed = known.of(table.catalog(), {1: 1, 2: 2}, before)
    return {
        **column_notes.render("shop_eu", renamed),
        source_positions.PREFIX + "shop_eu": source_positions.render(EU),
        rule.PREFIX + "shop_eu": "-.-.-.-.error",
        column_notes.PREFIX + "shop_us": earlier_notes.columns(dataclasses.replace(before, sights=())),
        source_positions.PREFIX + "shop_us": earlier_notes.position(US),
    }


def test_what_is_noted_of_each_source_is_told(config: Config) -> None:
    make(config, noted())
    assert notes.render(notes.tables(config)).splitlines() == [
        "table shop.items: 2 sources",
        "  shop_eu: everything that committed before 1/2DFB96A1; the last transaction is 742817 at 1/2DFB9500,"
        " 3 rows, committed 1970-01-01 00:00:01.000+00:00; of the system 7361234567890123456",
        "    its rows were made by the rule -.-.-.-.error",
        "    table with OID 100, file 1, rows told apart by the index with OID 200",
        "      number  column  type    version  field  more",
        "      ------  ------  ------  -------  -----  -------",
        "      1       id      23      2        1",
        "      2       m       23 (8)  5        2      was n",
        "      3       name    25      4        3      dropped",
        "    looked at 0/64: id, n, name",
        "    looked at 0/74: id, m",
        "  shop_us: everything that committed before 0/100; of the system ?",
        "    table with OID 100, file 1, rows told apart by the index with OID 200",
        "      number  column  type  version  field  more",
        "      ------  ------  ----  -------  -----  ----",
        "      1       id      23    2        1",
        "      2       n       23    3        2",
        "      3       name    25    4        3",
        "",
        "table shop.others: there is no such table in the lake",
    ]


@pytest.mark.parametrize("sid", ["us", "shop_us"])
def test_one_table_and_source_can_be_asked_for(config: Config, sid: str) -> None:
    make(config, noted())
    (table,) = notes.tables(config, table="items", sid=sid)
    (source,) = table["sources"]
    assert (source["source"], source["position"]["lsn"]) == ("shop_us", lsn.render(US.lsn))
    assert json.loads(json.dumps(table)) == table
    with pytest.raises(ConfigError, match="the map has no such table"):
        notes.tables(config, table="nothing")


def test_a_source_of_which_little_is_noted_is_told(config: Config) -> None:
    make(config, {rule.PREFIX + "shop_eu": "-.-.-.-.null"})
    assert notes.render(notes.tables(config, table="items")).splitlines() == [
        "table shop.items: 1 sources", "  shop_eu: no position", "    its rows were made by the rule -.-.-.-.null",
    ]  # fmt: skip
