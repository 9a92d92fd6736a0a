"""The lake as `check` and `plan` see it, in a catalog that PostgreSQL keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import LakeError
from kuvasz.verbs import lakeview
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres


def config_of(database: Database, folder: Path, user: str) -> Config:
    address = database.url.partition("@")[2]
    lake = {
        "uri": f"jdbc:postgresql://{address}",
        "warehouse": str(folder / "wh"),
        "properties": {"jdbc.user": user, "jdbc.password": "catalog-pw"},
    }
    databases = [{"database": "shop", "urls": [{"url": database.url}], "tables": {"items": None}}]
    file = folder / "map.yaml"
    file.write_text(json.dumps({"lake": lake, "databases": databases}))
    return load(file, {}).config


def test_a_fresh_catalog_is_to_be_made(database: Database, tmp_path: Path) -> None:
    config = config_of(database, tmp_path, "postgres")
    assert lakeview.prove_catalog(config) == "to be made"
    assert lakeview.LakeView(config).table("shop.items") is None
    assert database.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_a_catalog_that_its_user_may_not_make_is_told_with_the_sql_that_mends(
    database: Database, tmp_path: Path
) -> None:
    database.execute("DROP ROLE IF EXISTS catalog_user")
    database.execute("CREATE ROLE catalog_user LOGIN PASSWORD 'catalog-pw'")
    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(LakeError) as told:
        lakeview.prove_catalog(config_of(database, tmp_path, "catalog_user"))
    assert told.value.message == "the catalog cannot be made: catalog_user has no CREATE on schema public"
    assert told.value.hint == "at the catalog's database: GRANT CREATE ON SCHEMA public TO catalog_user;"
    database.execute(told.value.hint.partition(": ")[2])
    assert lakeview.prove_catalog(config_of(database, tmp_path, "catalog_user")) == "to be made"


def test_what_the_catalog_says_is_told_in_a_line(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE iceberg_tables (nothing int)")
    with pytest.raises(LakeError) as told:
        lakeview.prove_catalog(config_of(database, tmp_path, "postgres"))
    assert told.value.message == "the catalog cannot be read: column iceberg_tables.table_namespace does not exist"
