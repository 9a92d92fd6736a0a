"""A source that sends a large copy slowly takes its time, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from kuvasz.sync.tables import copy_snapshot
from tests.support.lake import LakeFolder, Pipeline
from tests.support.postgres import Database, create_database, drop_database
from tests.support.proxy import proxy
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Of a range: more of them than this machine has cores.
RANGE_BYTES = 2 << 20


@pytest.fixture
def slow(postgres16: EmbeddedPostgres) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


def test_a_copy_that_comes_slowly_keeps_neither_streams_nor_large_copies_of_others_waiting(
    monkeypatch: pytest.MonkeyPatch, lake_folder: LakeFolder, database: Database, slow: Database
) -> None:
    monkeypatch.setattr(copy_snapshot, "_RANGE_BYTES", RANGE_BYTES)
    for one, rows in ((database, 3000), (slow, 40_000)):
        one.execute("CREATE TABLE items (id int PRIMARY KEY, body text)")
        one.execute(f"INSERT INTO items SELECT i, repeat(md5(i::text), 16) FROM generate_series(1, {rows}) i")
    with proxy(slow.server.port) as between:
        url = slow.url.replace(f":{slow.server.port}", f":{between.port}")
        assert urlsplit(url).port == between.port
        databases = [
            {"database": "slow", "urls": [{"url": url, "sid": "s"}], "tables": {"items": {"target": "slow_items"}}},
            {"database": "well", "urls": [{"url": database.url, "sid": "w"}], "tables": {"items": None}},
        ]
        with Pipeline(lake_folder.config(databases), lake_folder) as pipeline:
            wait_until(lambda: pipeline.states().get(("slow_s", "shop.slow_items")) is not None, "it is there")
            pipeline.wait_streaming()
            between.bytes_per_s = 30_000
            pipeline.tell("resync", "shop.slow_items", "slow_s")
            sent = between.answered
            wait_until(lambda: between.answered > sent + 300_000, lambda: f"rows come: {pipeline.errors()}")
            done = lambda: next(one.copy_done for one in pipeline.app.states.snapshot() if one.source == "slow_s")  # noqa: E731
            database.execute("INSERT INTO items VALUES (-1, 'streamed')")
            wait_until(lambda: (-1, "streamed") in pipeline.rows("items"), "the others' streams go on")
            assert (done(), pipeline.states()["slow_s", "shop.slow_items"]) == (0, State.COPYING)
            pipeline.tell("resync", "shop.items", "well_w")
            copied = lambda: next(one.copies for one in pipeline.app.states.snapshot() if one.source == "well_w")  # noqa: E731
            wait_until(lambda: copied() == 2, "the others' large tables are copied")
            assert (done(), pipeline.states()["slow_s", "shop.slow_items"]) == (0, State.COPYING)
            between.bytes_per_s = 0
            pipeline.wait_streaming()
            assert len(pipeline.rows("slow_items")) == 40_000
