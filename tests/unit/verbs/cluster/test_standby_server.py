"""What a process answers that stands by."""

from __future__ import annotations

import asyncio
import json
import socket
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from kuvasz.config.model import ServerConfig
from kuvasz.errors import ConfigError
from kuvasz.state.ports import LeaseHolder
from kuvasz.verbs.cluster.standby_server import serve

HOLDER = LeaseHolder(
    node="one-1", does="replicates", map_digest="a", since="2026-01-01T00:00:00+00:00", is_late=False
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def answers(standby: Any, *paths: str) -> list[tuple[int, str]]:
    async def ask() -> list[tuple[int, str]]:
        config = ServerConfig(address=f"127.0.0.1:{free_port()}")
        async with serve(standby, config), aiohttp.ClientSession() as session:
            found = []
            for path in paths:
                async with session.get(f"http://{config.address}{path}") as answer:
                    found.append((answer.status, await answer.text()))
            return found

    return asyncio.run(ask())


def test_it_lives_is_ready_and_says_who_replicates() -> None:
    standby = SimpleNamespace(node="two-2", holder=HOLDER, differs=True)
    lives, ready, status, metrics, other = answers(standby, "/livez", "/readyz", "/status", "/metrics", "/api/pause")
    assert (lives, ready) == ((200, '{"ok": true}'), (200, '{"ok": true}'))
    assert json.loads(status[1]) == {
        "phase": "standing by", "node": "two-2", "holder": {"node": "one-1", "since": HOLDER.since},
        "has_other_map": True,
    }  # fmt: skip
    assert "\nkuvasz_replicates 0.0\n" in metrics[1]
    assert "kuvasz_build_info{" in metrics[1]
    assert other[0] == 404


def test_before_the_first_look_nobody_is_known_to_replicate() -> None:
    ((_, status),) = answers(SimpleNamespace(node="two-2", holder=None, differs=False), "/status")
    assert json.loads(status)["holder"] is None


def test_without_an_address_nothing_is_served() -> None:
    async def pass_by() -> None:
        async with serve(SimpleNamespace(), ServerConfig(address=None)):  # type: ignore[arg-type]
            pass

    asyncio.run(pass_by())


def test_an_address_that_is_taken_is_told() -> None:
    async def collide() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            async with serve(SimpleNamespace(), ServerConfig(address=f"127.0.0.1:{other.getsockname()[1]}")):  # type: ignore[arg-type]
                pass

    with pytest.raises(ConfigError, match="cannot listen on"):
        asyncio.run(collide())
