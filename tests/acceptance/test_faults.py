"""A network that breaks in every way: nothing is lost, and nobody has to do anything.

The lake is the one in memory: what is tried here is the way from the source, and that way is the real one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config.load import load
from kuvasz.errors import SourceError
from kuvasz.source import conninfo, copy_out
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.state.tables import State
from kuvasz.sync.context import shared
from tests.support.lake import MemoryPipeline
from tests.support.postgres import Database
from tests.support.proxy import Proxy, proxy
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres]

ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, n int, body text)"
FILL = "INSERT INTO items SELECT i, 0, repeat('x', 100) FROM generate_series(1, 2000) i"


@pytest.fixture
def network(database: Database) -> Iterator[Proxy]:
    """The way to the database."""
    with proxy(database.server.port) as made:
        yield made


@pytest.fixture
def pipeline(database: Database, network: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPipeline]:
    """A running kuvasz that copied a table, and calls a connection dead after three seconds."""
    impatient = functools.partial(ReaderOptions, silence_timeout_s=3.0, status_interval_s=0.5)
    monkeypatch.setattr(shared, "ReaderOptions", impatient)
    database.execute(ITEMS)
    database.execute(FILL)
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-faults-"))
    url = database.url.replace(f":{database.server.port}/", f":{network.port}/")
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "20ms"},
        "server": {"address": None},
        "databases": [{"database": "shop", "urls": [{"url": url}], "tables": {"items": None}}],
    }
    (folder / "map.yaml").write_text(json.dumps(document))
    with MemoryPipeline(load(folder / "map.yaml", {}).config, SimpleNamespace()) as running:
        running.wait_streaming()
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@dataclasses.dataclass
class Load:
    """Changes, one transaction after another, until told to stop."""

    database: Database
    transactions: int = 0

    def __enter__(self) -> Load:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self) -> None:
        with self.database.connect() as connection:
            while not self._stop.wait(0.002):
                number = self.transactions = self.transactions + 1
                connection.execute("UPDATE items SET n = %s WHERE id %% 97 = %s", (number, number % 97))
                connection.execute("INSERT INTO items VALUES (%s, 0, %s)", (10_000 + number, "y" * (number % 300)))
                connection.execute("DELETE FROM items WHERE id = %s", (10_000 + number // 2,))
                connection.commit()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def settled(pipeline: MemoryPipeline, database: Database) -> None:
    """Wait until the lake has what the source has now."""
    ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    (sync,) = pipeline.app.sources
    wait_until(lambda: pipeline.app.progress.confirmable(sync.source.name) >= now, f"applied: {pipeline.errors()}")
    assert pipeline.rows() == sorted(database.execute("SELECT * FROM items"))
    assert not pipeline.errors()


# Slow: they are cut in the middle of anything above.
@pytest.mark.slow
def test_connections_that_are_cut_again_and_again(
    pipeline: MemoryPipeline, network: Proxy, database: Database
) -> None:
    with Load(database) as load_:
        for _ in range(4):
            before = network.connections
            network.cut()
            wait_until(lambda before=before: network.connections > before, "it reconnects")
            seen = load_.transactions
            wait_until(lambda seen=seen: load_.transactions > seen + 50, "load goes on")
    settled(pipeline, database)


def test_connections_that_are_cut_in_the_middle_of_anything(
    pipeline: MemoryPipeline, network: Proxy, database: Database
) -> None:
    seed = random.randrange(1 << 30)  # noqa: S311
    print(f"seed {seed}")
    cuts = random.Random(seed)  # noqa: S311
    with Load(database):
        for _ in range(6):
            # From within a greeting to far into the stream.
            network.bytes_left = int(10 ** cuts.uniform(0.5, 4.5))
            wait_until(lambda: network.bytes_left < 0, "it was cut")
    settled(pipeline, database)


def test_a_connection_that_swallows_everything_is_given_up(
    pipeline: MemoryPipeline, network: Proxy, database: Database
) -> None:
    with Load(database):
        network.is_swallowing = True
        wait_until(lambda: any("nothing came from the server for" in error for error in pipeline.errors()), "noticed")
        network.is_swallowing = False
        network.cut()
    settled(pipeline, database)


@pytest.mark.parametrize(
    "is_plain", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["from the socket", "through libpq"]
)
def test_a_copy_whose_bytes_are_swallowed_is_given_up_and_made_again(
    pipeline: MemoryPipeline,
    network: Proxy,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_plain: bool,
) -> None:
    monkeypatch.setattr(copy_out, "SILENCE_S", 2.0)
    if not is_plain:
        monkeypatch.setattr(copy_out, "is_plain", lambda _: False)
    database.execute("INSERT INTO items SELECT i, 0, repeat('x', 100) FROM generate_series(2001, 10000) i")
    settled(pipeline, database)
    network.bytes_per_s, before = 200_000.0, network.answered  # some seconds for the table
    pipeline.tell("resync", "shop.items", "shop")
    wait_until(lambda: network.answered > before + 300_000, "it copies")
    network.is_swallowing = True
    told = "nothing came from the server for 2 s"
    wait_until(lambda: any(told in str(getattr(record, "error", "")) for record in list(caplog.records)), "noticed")
    network.is_swallowing, network.bytes_per_s = False, 0.0
    network.cut()
    wait_until(lambda: pipeline.states()["shop", "shop.items"] is State.STREAMING, "it is copied")
    settled(pipeline, database)


@pytest.fixture
def far_address() -> Iterator[str]:
    """An address of this machine whose packets may vanish; see `vanishing`."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("no route can be changed here")
    address = f"127.{random.randrange(10, 250)}.{random.randrange(250)}.7"  # noqa: S311
    yield address
    subprocess.run(["ip", "route", "del", "blackhole", address, "table", "local"], check=False, capture_output=True)


def vanish(address: str) -> None:
    """Lose every packet to an address, and from it."""
    made = subprocess.run(["ip", "route", "add", "blackhole", address, "table", "local"], check=False)
    if made.returncode != 0:
        pytest.skip("no route can be changed here")


@pytest.mark.parametrize(
    "is_plain", [pytest.param(True, marks=pytest.mark.slow), False], ids=["from the socket", "through libpq"]
)
def test_a_copy_whose_source_is_gone_without_a_word_is_given_up(
    database: Database, far_address: str, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    """TCP's own keepalives tell, long before the silence does."""
    if not is_plain:
        monkeypatch.setattr(copy_out, "is_plain", lambda _: False)
    with proxy(database.server.port, far_address) as network:
        network.bytes_per_s = 200_000.0
        url = database.url.replace(f"127.0.0.1:{database.server.port}/", f"{far_address}:{network.port}/")
        patience = "keepalives_idle=1&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=3000"
        plain = conninfo.conninfo(f"{url}{'&' if '?' in url else '?'}{patience}")
        with contextlib.closing(conninfo.connect(plain)) as connection:
            statement = "COPY (SELECT repeat('x', 100) FROM generate_series(1, 20000)) TO STDOUT"
            rows = copy_out.rows(connection.pgconn, statement, 10_000, place="source eu", doing="copy")
            next(rows)
            vanish(far_address)
            begin = time.monotonic()
            with pytest.raises(SourceError, match="source eu: cannot copy: "):
                list(rows)
            assert time.monotonic() - begin < 20


def test_a_source_that_is_away_for_a_while(pipeline: MemoryPipeline, network: Proxy, database: Database) -> None:
    network.is_refusing = True
    network.cut()
    wait_until(pipeline.errors, "it is told")
    with Load(database) as load_:
        wait_until(lambda: load_.transactions > 200, "the source goes on")
    network.is_refusing = False
    settled(pipeline, database)


def test_a_slow_and_narrow_network(pipeline: MemoryPipeline, network: Proxy, database: Database) -> None:
    network.delay_s, network.bytes_per_s = 0.02, 400_000.0
    with Load(database) as load_:
        wait_until(lambda: load_.transactions > 300, "load")
    settled(pipeline, database)


def test_a_walsender_that_is_ended_by_an_administrator(pipeline: MemoryPipeline, database: Database) -> None:
    with Load(database):
        for _ in range(3):
            pid = "SELECT active_pid FROM pg_replication_slots WHERE active_pid IS NOT NULL AND NOT temporary"
            wait_until(lambda pid=pid: database.execute(pid), "it streams")
            database.execute(f"SELECT pg_terminate_backend(({pid}))")
    settled(pipeline, database)


def test_a_clock_that_jumps_changes_nothing(
    pipeline: MemoryPipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait and every timeout goes by the monotonic clock; the clock on the wall is only told to people."""
    real, real_ns = time.time, time.time_ns
    with Load(database) as load_:
        for hours in (5, -7, 0):
            monkeypatch.setattr(time, "time", lambda hours=hours: real() + hours * 3600)
            monkeypatch.setattr(time, "time_ns", lambda hours=hours: real_ns() + hours * 3600 * 10**9)
            seen = load_.transactions
            wait_until(lambda seen=seen: load_.transactions > seen + 100, "load")
            assert not pipeline.errors()
    settled(pipeline, database)
