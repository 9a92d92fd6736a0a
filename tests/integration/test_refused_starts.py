"""What stops a start at a source is found by `check` and by `plan`, before anything is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.model import SourcePosition
from kuvasz.source import conninfo, slots
from kuvasz.source.catalog import introspect
from kuvasz.verbs import check, plan
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

#: Of a role that may nothing.
ROLE = "refused_role"


def config_of(folder: Path, url: str, **database: object) -> Config:
    lake = {"uri": "jdbc:sqlite:c.db", "warehouse": "wh", "namespace": "shop"}
    group = {"database": "shop", "urls": [{"url": url, "sid": "eu"}], "tables": {"items": None}, **database}
    file = folder / "map.yaml"
    file.write_text(json.dumps({"lake": lake, "databases": [group]}))
    return load(file, {}).config


@pytest.fixture
def items(database: Database) -> Iterator[Database]:
    database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    database.execute(f"CREATE ROLE {ROLE} LOGIN")
    yield database
    database.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def test_a_plan_has_the_privileges_that_are_missing(items: Database, tmp_path: Path) -> None:
    config = config_of(tmp_path, items.server.url(items.name, user=ROLE))
    (found,) = plan.plans(config)
    assert (found.error_code, plan.exit_code([found])) == (3, 3)
    assert found.error == f"replication_privilege: {ROLE}: no, needed is REPLICATION"
    assert found.hint is not None
    assert found.hint.startswith(f'ALTER ROLE "{ROLE}" REPLICATION;')
    (table,) = found.tables
    assert (table.action, table.error) == ("error", 'select: denied on "public"."items", needed is SELECT')
    assert {finding.check for finding in check.findings(config) if finding.is_blocking} >= {
        "replication_privilege", "select", "publication",
    }  # fmt: skip


def test_a_plan_has_wal_level(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "data", version=16, settings={"wal_level": "replica"}) as server:
        with conninfo.connect(server.url()) as connection:
            connection.execute("CREATE TABLE public.items (id int PRIMARY KEY)")
        (found,) = plan.plans(config_of(tmp_path, server.url()))
    assert (found.error, found.error_code) == ("wal_level: replica, needed is logical", 3)
    assert found.hint == "ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server"


def positions(database: Database) -> Mapping[str, SourcePosition]:
    """How far a source is in every table of the lake."""
    with conninfo.connect(database.url) as connection:
        system_id = str(introspect.server(connection).system_identifier)
    return {"shop_eu": SourcePosition(lsn=5, system_id=system_id)}


def test_a_slot_that_is_gone_is_found_while_the_lake_has_rows(items: Database, tmp_path: Path) -> None:
    (source,) = config_sources.resolve(config_of(tmp_path, items.url))
    assert check._beside_lake(source, lambda _: {}) == []
    (finding,) = check._beside_lake(source, lambda _: positions(items))
    assert (finding.check, finding.is_blocking, check.exit_code([finding])) == ("stream", True, 5)
    assert finding.value == "source shop_eu: slot kuvasz_shop_eu is gone, but the lake has rows of it"
    assert finding.fix == (
        "the missed changes are gone: copy the source again: kuvasz resync --sid shop_eu, or"
        " `on_slot_lost: repair` or `resync`"
    )
    slots.create(conninfo.replication_conninfo(items.url), source.object_name).close()
    items.execute(f"CREATE PUBLICATION {source.object_name} FOR TABLE items")
    assert check._beside_lake(source, lambda _: positions(items)) == []


def test_a_slot_that_is_gone_stops_nothing_where_the_map_says_how_it_goes_on(items: Database, tmp_path: Path) -> None:
    (source,) = config_sources.resolve(config_of(tmp_path, items.url, on_slot_lost="repair"))
    (finding,) = check._beside_lake(source, lambda _: positions(items))
    assert (finding.is_blocking, finding.fix) == (False, "`on_slot_lost: repair` does it by itself")
