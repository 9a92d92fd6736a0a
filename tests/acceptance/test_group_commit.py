"""kuvasz is killed around commits of a group: its tables never show a part of a transfer, and nothing is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import bank, oracle
from tests.support.catalogs import in_a_file
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.rest_catalog import rest_server

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Before files of metadata are there, between them and the one step that shows all, and behind that.
KILLS = ("after_delete_files:kill:5", "before_commit:kill:3", "after_commit:kill:4", "before_durable:kill:5")

EAGER = {"interval": "300ms", "merge_interval": "300ms", "min_files": 3}

#: Of a map, where the catalog's tables' metadata is at one moment, and the catalog's properties for PyIceberg.
Catalog = tuple[dict[str, object], Callable[[Process], dict[str, str]], Callable[[Process], dict[str, str]]]


@contextlib.contextmanager
def _sqlite(_: Path) -> Iterator[Catalog]:
    yield {}, lambda kuvasz: bank.pointers(kuvasz.folder / "catalog.db"), lambda kuvasz: kuvasz.pyiceberg


@contextlib.contextmanager
def _rest(folder: Path) -> Iterator[Catalog]:
    with rest_server(folder) as server:
        known = {"type": "rest", "uri": server.uri, "warehouse": str(folder)}
        yield {**known}, lambda _: server.catalog.moment(), lambda _: known | {"warehouse": f"file://{folder}"}


@in_a_file
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("catalog", [_sqlite, _rest], ids=("sqlite", "rest"))
def test_a_bank_whose_kuvasz_is_killed_has_the_same_money(
    database: Database,
    new_process: Callable[..., Process],
    tmp_path: Path,
    catalog: Callable[[Path], contextlib.AbstractContextManager[Catalog]],
) -> None:
    with catalog(tmp_path / "wh") as (lake, moment, properties):
        kuvasz = new_process(bank.open_bank(database), lake=lake, maintenance=EAGER, pipeline={"workers": 3})

        def look() -> None:
            assert bank.money(bank.tables_at(moment(kuvasz))) == bank.MONEY

        kuvasz.start()
        kuvasz.wait_event("copied", 2)
        kuvasz.kill()
        with bank.Transfers(database):
            for point in KILLS:
                kuvasz.start(failpoints=point)
                while kuvasz.is_running and not kuvasz.found("failpoint"):
                    look()
                kuvasz.wait_killed()
                look()
        assert kuvasz.start("--until-caught-up").wait() == 0, kuvasz.report()
        look()
        for table in bank.TABLES:
            expected = oracle.source_rows(database.url, table, sid="eu")
            for read in (oracle.lake_rows_pyiceberg, oracle.lake_rows_duckdb):
                oracle.assert_equal(expected, read(properties(kuvasz), f"shop.{table}"), key=("sid", "id"))
