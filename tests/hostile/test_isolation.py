"""A source that is silent, garbled or held up keeps no other waiting, and ends nothing but itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from kuvasz import app
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import SourceError
from kuvasz.source import conninfo
from kuvasz.source.reading.connection import Connection
from kuvasz.state.tables import State
from kuvasz.verbs import check, plan
from tests.support.lake import MemoryPipeline, group
from tests.support.liar import LIES, liar
from tests.support.postgres import Database, create_database, drop_database
from tests.support.proxy import Proxy, proxy, url_through
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int)"


@contextlib.contextmanager
def filled(server: EmbeddedPostgres, number: int) -> Iterator[Database]:
    """A database with a row of that number."""
    created = create_database(server)
    created.execute(ITEMS)
    created.execute("INSERT INTO items VALUES (%s, %s)", [number, number])
    yield created
    drop_database(created)


@pytest.fixture
def well(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    """The source that must not notice."""
    with filled(postgres18, 1) as made:
        yield made


@pytest.fixture
def ill(postgres16: EmbeddedPostgres) -> Iterator[Database]:
    """The source that something is wrong with."""
    with filled(postgres16, 2) as made:
        yield made


@pytest.fixture
def between(postgres16: EmbeddedPostgres) -> Iterator[Proxy]:
    """What stands before the ill one."""
    with proxy(postgres16.port) as made:
        yield made


def config(folder: Path, *groups: Mapping[str, Any]) -> Config:
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "20ms"},
        "server": {"address": None},
        "databases": list(groups),
    }
    (folder / "map.yaml").write_text(json.dumps(document))
    return load(folder / "map.yaml", {}).config


def through(between: Proxy, ill: Database) -> str:
    """The url of the ill one behind what stands before it; it may take its time to answer."""
    return url_through(ill, between.port, "sslmode=disable&connect_timeout=600")


def mixed(well: Database, *urls: str) -> Mapping[str, Any]:
    (found,) = group({"well": well}, {"items": None})
    found["urls"] += [{"url": url, "sid": f"ill{number}"} for number, url in enumerate(urls)]
    return found


def of(pipeline: MemoryPipeline, sid: str) -> list[tuple]:
    with contextlib.suppress(KeyError):  # the table is not there yet
        return [row for row in pipeline.rows() if row[0] == sid]
    return []


def follows(pipeline: MemoryPipeline, well: Database) -> None:
    """The well one is copied, streams, and has its tables looked at anew as they change."""
    wait_until(lambda: of(pipeline, "well") == [("well", 1, 1)], lambda: f"it is copied: {pipeline.errors()}")
    well.execute("INSERT INTO items VALUES (3, 3)")
    wait_until(lambda: len(of(pipeline, "well")) == 2, lambda: f"it streams: {pipeline.errors()}")
    well.execute("ALTER TABLE items ADD more int")
    well.execute("UPDATE items SET more = 5")
    wait_until(lambda: {row[-1] for row in of(pipeline, "well")} == {5}, lambda: f"it changes: {pipeline.errors()}")


#: More than the shared threads of this test, on as many servers as it takes for each to be waited for at once.
SILENT, SERVERS, THREADS = 60, 20, 40


def test_more_silent_sources_than_there_are_shared_threads_keep_no_other_waiting(
    tmp_path: Path, well: Database, ill: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_THREADS", THREADS)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(proxy(ill.server.port)) for _ in range(SERVERS)]
        for server in servers:
            server.is_swallowing = True
        urls = [f"{through(servers[number % SERVERS], ill)}&application_name=ill{number}" for number in range(SILENT)]
        pipeline = stack.enter_context(MemoryPipeline(config(tmp_path, mixed(well, *urls)), SimpleNamespace()))
        wait_until(lambda: sum(server.connections for server in servers) >= SILENT, "all of them are asked")
        follows(pipeline, well)
        for server in servers:
            server.is_refusing = True
            server.cut()


def test_a_name_that_is_no_utf_8_is_its_sources_error(
    tmp_path: Path, well: Database, postgres16: EmbeddedPostgres
) -> None:
    """In a database without an encoding nobody checks what names are made of, until it is sent."""
    ill = create_database(postgres16, options="TEMPLATE template0 LOCALE 'C' ENCODING 'SQL_ASCII'")
    try:
        ill.execute(ITEMS)
        ill.execute("INSERT INTO items VALUES (2, 2)")
        rename = b'ALTER TABLE items RENAME n TO "caf\xe9"'
        with psycopg.connect(ill.url, autocommit=True, client_encoding="SQL_ASCII") as session:
            session.execute(rename)
        with MemoryPipeline(config(tmp_path, mixed(well, ill.url)), SimpleNamespace()) as pipeline:
            follows(pipeline, well)
            error = lambda: pipeline.app.sync("shop_ill0").error  # noqa: E731
            wait_until(lambda: error() is not None, "it is told")
            assert 'cannot read the catalog: invalid byte sequence for encoding "UTF8": 0xe9' in str(error())
            assert "give it another name" in str(error())
            with psycopg.connect(ill.url, autocommit=True, client_encoding="SQL_ASCII") as session:
                session.execute(b'ALTER TABLE items RENAME "caf\xe9" TO n')
            wait_until(
                lambda: of(pipeline, "ill0") == [("ill0", 2, 2, None)], lambda: f"it comes: {pipeline.errors()}"
            )
    finally:
        drop_database(ill)


def test_a_name_that_is_no_utf_8_on_its_way_is_its_sources_error(
    tmp_path: Path, well: Database, ill: Database, between: Proxy
) -> None:
    """A server compares what it sends with the encoding that was asked for; what stands between may not."""
    ill.execute("ALTER TABLE items RENAME n TO zebra")
    between.lies = {b"zebra": b"zebr\xe9"}
    with MemoryPipeline(config(tmp_path, mixed(well, through(between, ill))), SimpleNamespace()) as pipeline:
        follows(pipeline, well)
        error = lambda: pipeline.app.sync("shop_ill0").error  # noqa: E731
        wait_until(lambda: error() is not None, "it is told")
        assert "the server sent what is no UTF-8" in str(error())
        assert "zebr" in str(error())
        ill.execute("ALTER TABLE items RENAME zebra TO n")
        wait_until(lambda: of(pipeline, "ill0") == [("ill0", 2, 2, None)], lambda: f"it comes: {pipeline.errors()}")


@pytest.mark.parametrize("lie", ["not a number", "7" * 12])
def test_an_answer_that_nobody_thought_of_is_its_sources_error(
    tmp_path: Path, well: Database, ill: Database, between: Proxy, lie: str
) -> None:
    """As a garbled IDENTIFY_SYSTEM, a forged comment of a publication, or a bug of ours."""
    with psycopg.connect(ill.url) as session:
        ((name,),) = session.execute("SELECT system_identifier::text FROM pg_control_system()").fetchall()
    between.lies = {name.encode(): lie.ljust(len(name), "?").encode()[: len(name)]}
    document = mixed(well, through(between, ill))
    with MemoryPipeline(config(tmp_path, document), SimpleNamespace()) as pipeline:
        follows(pipeline, well)
        wait_until(lambda: pipeline.app.sync("shop_ill0").error is not None, "it is told")
        between.lies = {}
        wait_until(lambda: of(pipeline, "ill0") == [("ill0", 2, 2, None)], lambda: f"it comes: {pipeline.errors()}")


def test_a_verb_that_asks_all_sources_says_what_is_wrong_with_one_and_goes_on(
    tmp_path: Path, well: Database, ill: Database, between: Proxy
) -> None:
    ((name,),) = ill.execute("SELECT system_identifier::text FROM pg_control_system()")
    between.lies = {name.encode(): b"not a number".ljust(len(name), b"?")}
    asked = config(tmp_path, mixed(well, through(between, ill)))
    checked = check.findings(asked)
    blocking = [one.value for one in checked if one.source == "kuvasz_shop_ill0" and one.is_blocking]
    assert any("not a number" in value for value in blocking), blocking
    assert {one.check for one in checked if one.source == "kuvasz_shop_well"} >= {"reachable", "wal_level", "key"}
    planned = {one.source: one for one in plan.plans(asked)}
    assert "not a number" in str(planned["shop_ill0"].error)
    assert planned["shop_well"].error is None
    assert [table.action for table in planned["shop_well"].tables] == ["copy"]


def test_a_snapshot_that_waits_for_a_transaction_lets_others_copy(
    tmp_path: Path, well: Database, ill: Database
) -> None:
    document = mixed(well, ill.url)
    with MemoryPipeline(config(tmp_path, document), SimpleNamespace()) as pipeline, contextlib.ExitStack() as stack:
        pipeline.wait_streaming()
        old = stack.enter_context(ill.connect())
        old.execute("INSERT INTO items VALUES (9, 9)")
        pipeline.tell("resync", "shop.items", "shop_ill0")
        pipeline.wait_state("shop_ill0", "shop.items", State.NEW)
        pipeline.tell("resync", "shop.items", "shop_well")
        well.execute("INSERT INTO items VALUES (5, 5)")
        waits = lambda: {one.source: one.waits_for for one in pipeline.app.states.snapshot()}  # noqa: E731
        wait_until(lambda: waits()["shop_ill0"], "it is told for whom it waits")
        assert waits()["shop_ill0"].startswith(f"pid {old.info.backend_pid} (postgres, ")
        assert waits()["shop_well"] == ""
        copies = lambda: {one.source: one.copies for one in pipeline.app.states.snapshot()}  # noqa: E731
        wait_until(lambda: copies()["shop_well"] == 2, lambda: f"it is copied: {pipeline.errors()} {copies()}")
        pipeline.wait_state("shop_well", "shop.items", State.STREAMING)
        assert copies()["shop_ill0"] == 1
        old.commit()
        wait_until(lambda: copies()["shop_ill0"] == 2, lambda: f"it is copied, too: {pipeline.errors()}")
        wait_until(lambda: len(of(pipeline, "ill0")) == 2, "it is right")
        assert waits()["shop_ill0"] == ""


def test_an_answer_without_end_takes_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be kept whole: a gigabyte in ten seconds, and then there is no kuvasz for anybody."""
    monkeypatch.setattr(conninfo, "MOST_BYTES", 8 << 20)
    sent: list[int] = []

    def overflowing(client: socket.socket) -> None:
        counted: Any = SimpleNamespace(sendall=lambda data: (client.sendall(data), sent.append(len(data))),
                                       recv=client.recv)  # fmt: skip
        LIES["overflowing"](counted)

    for ask in (
        conninfo.connect,
        lambda url: conninfo.connect_pq(conninfo.replication_conninfo(url)),
        lambda url: asyncio.run(_identified(url)),
    ):
        sent.clear()
        with (
            liar(overflowing) as server,
            pytest.raises(SourceError, match="its answer has more than 8 MB, and no end"),
        ):
            ask(f"postgresql://x@127.0.0.1:{server.port}/x?sslmode=disable&connect_timeout=10")
        assert sum(sent) < 100 << 20


async def _identified(url: str) -> None:
    connection = await Connection.open(conninfo.replication_conninfo(url), "eu", compiled=False)
    try:
        await connection.identify_system()
    finally:
        connection.close()
