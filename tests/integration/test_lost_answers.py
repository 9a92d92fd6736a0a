"""Catalogs that have taken a commit though nobody was told so: it is there, once, and its table can be read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.changes import ITEMS, SAME, Sender, delete, feed, insert, target, update, work
from tests.support.proxy import Proxy, proxy
from tests.support.rest_catalog import RestCatalogFolder
from tests.support.stores import PostgresCatalogFolder
from tests.support.vending.catalog import RestCatalog
from tests.support.worlds import QUIET, IcebergWorld

#: What the server says of an exchange of one table's metadata.
EXCHANGED = b"UPDATE 1"
COMMITTED = b"COMMIT"


class FarFolder(PostgresCatalogFolder):
    """Its catalog is reached through a network that may be broken."""

    network: Proxy

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self.network.port}/{self.database.name}"


@pytest.fixture
def network(postgres_catalog: PostgresCatalogFolder) -> Iterator[Proxy]:
    with proxy(postgres_catalog.database.server.port) as made:
        yield made


@pytest.fixture
def world(
    postgres_catalog: PostgresCatalogFolder, network: Proxy, spark_session: SparkSession
) -> Iterator[IcebergWorld]:
    folder = FarFolder(spark_session, postgres_catalog.database)
    folder.network = network
    made = IcebergWorld(folder, QUIET)
    yield made
    made.lake.close()
    folder.remove()


def test_rows_of_the_stream_are_there_once_and_readable(world: IcebergWorld, network: Proxy) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 1, "a"), (2, 2, "b"), (3, 3, "c"))
    eu = Sender()
    for number in range(3):
        network.unsaid.add(EXCHANGED)
        world.applied(work(eu.one(insert(4 + number, 4), update(2, number, SAME), delete(3))))
        assert not network.unsaid, "an answer was lost"
    world.applied(work(eu.one(insert(9, 9), update(1, 11, SAME))))
    assert world.of("eu") == {1: (11, "a"), 2: (2, "b"), 4: (4, "b"), 5: (4, "b"), 6: (4, "b"), 9: (9, "b")}
    assert len(world.spark_rows()) == 6
    assert world.orphans() == []


def test_a_copy_and_merged_files_are_there_and_readable(world: IcebergWorld, network: Proxy) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    network.unsaid.add(EXCHANGED)
    world.copy("eu", (1, 1, "a"), (2, 2, "b"))
    eu = Sender()
    for number in range(3):
        world.applied(work(eu.one(insert(3 + number, 0), update(2, number, SAME))))
    network.unsaid.add(EXCHANGED)
    upkeep = world.lake.maintenance.run(target().name, full=True)
    assert not network.unsaid
    assert (upkeep.files, upkeep.delete_files) == (1, 0)
    world.applied(work(eu.one(update(1, 5, SAME))))
    assert world.of("eu") == {1: (5, "a"), 2: (2, "b"), 3: (0, "b"), 4: (0, "b"), 5: (0, "b")}


@pytest.mark.parametrize("unsaid", [EXCHANGED, COMMITTED])
def test_tables_of_a_group_are_there_and_readable(world: IcebergWorld, network: Proxy, unsaid: bytes) -> None:
    names = ("shop.a", "shop.b")
    for name in names:
        world.lake.prepare(dataclasses.replace(target(name), group="shop"), feed("eu", name), ITEMS)
        world.copy("eu", (1, 1, "a"), name=name)
    eu = Sender()
    for number in range(2):
        lsn = eu.commit_lsn()
        network.unsaid.add(unsaid)
        world.applied(*(work(eu.segment([(lsn, [update(1, number, SAME)])]), target=name) for name in names))
        assert not network.unsaid
    assert [world.of("eu", name) for name in names] == [{1: (1, "a")}] * 2


def test_a_commit_that_a_gateway_sends_twice_is_there_once(
    rest_catalog: RestCatalogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, sent = rest_catalog.server.catalog, []

    def twice(*request: Any) -> Any:
        sent.append(request)
        RestCatalog.commit(catalog, *request)
        return RestCatalog.commit(catalog, *request)

    world = IcebergWorld(rest_catalog, QUIET)
    try:
        world.prepare("eu")
        world.copy("eu", (1, 1, "a"), (2, 2, "b"))
        monkeypatch.setattr(catalog, "commit", twice)
        eu = Sender()
        for number in range(3):
            world.applied(work(eu.one(insert(3 + number, 0), update(2, number, SAME))))
        upkeep = world.lake.maintenance.run(target().name, full=True)
        assert (upkeep.files, upkeep.delete_files) == (1, 0)
        world.applied(work(eu.one(update(1, 5, SAME))))
        assert world.of("eu") == {1: (5, "a"), 2: (2, "b"), 3: (0, "b"), 4: (0, "b"), 5: (0, "b")}
        assert len(sent) >= 5
    finally:
        world.lake.close()
