"""The demo's three PostgreSQL servers: started together, seeded, and stopped whatever happens."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from typing import TYPE_CHECKING

import psycopg

from kuvasz.demo import shop
from kuvasz.demo.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SIDS = ("eu", "us", "ap")


@contextlib.contextmanager
def sources(folder: Path) -> Iterator[dict[str, EmbeddedPostgres]]:
    """Run one seeded server per sid; their data folders of an earlier run are removed first, these at the end.

    Ports are free ones, or those in the environment: EU_PORT, US_PORT, AP_PORT.
    """
    servers = {
        sid: EmbeddedPostgres(folder / sid, port=int(os.environ.get(f"{sid.upper()}_PORT", "0")) or None)
        for sid in SIDS
    }
    try:
        with concurrent.futures.ThreadPoolExecutor(thread_name_prefix="demo-server") as pool:
            for outcome in [pool.submit(_begin, sid, server) for sid, server in servers.items()]:
                outcome.result()
        yield servers
    finally:
        for server in servers.values():
            discard(server)
        with contextlib.suppress(OSError):  # somebody else's things stay in it, or it was never made
            folder.rmdir()


def discard(server: EmbeddedPostgres) -> None:
    """Stop a server that may run, started by this process or left by an earlier one, and delete its data."""
    if (server.folder / "postmaster.pid").exists():
        # pg_ctl complains when the pid file is a leftover and nobody runs.
        with contextlib.suppress(RuntimeError):
            server.stop("immediate")
    server.remove()


def urls(servers: Mapping[str, EmbeddedPostgres]) -> dict[str, str]:
    """Return the environment that ``config/map.yaml`` reads: EU_URL, US_URL, AP_URL."""
    return {f"{sid.upper()}_URL": server.url(shop.DATABASE, user=shop.ROLE) for sid, server in servers.items()}


def streaming_slots(servers: Mapping[str, EmbeddedPostgres]) -> int:
    """Count the servers whose stream is being read."""
    found = 0
    for server in servers.values():
        with psycopg.connect(server.url(shop.DATABASE)) as connection:
            query = "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE active AND NOT temporary)"
            [(is_read,)] = connection.execute(query).fetchall()
            found += bool(is_read)
    return found


def _begin(sid: str, server: EmbeddedPostgres) -> None:
    discard(server)
    server.start()
    shop.create(server.url(), sid)
