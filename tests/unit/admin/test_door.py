from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kuvasz.admin import door
from tests.support.admin_world import AdminWorld


async def _answer(_: web.Request) -> web.Response:
    return web.Response(text="open")


@contextlib.asynccontextmanager
async def served(*hosts: str) -> AsyncIterator[tuple[str, int]]:
    application = web.Application(middlewares=[door.only_for(hosts)])
    application.add_routes([web.get("/", _answer)])
    runner = web.AppRunner(application, access_log=None, **door.LIMITS)
    await runner.setup()
    assert runner.server is not None
    listening = await asyncio.get_running_loop().create_server(door.ConnectionLimit(runner.server), "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()
    listening.close()
    await runner.cleanup()


async def ask(place: tuple[str, int], *headers: bytes, version: bytes = b"1.1") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(*place)
    writer.write(b"\r\n".join([b"GET / HTTP/" + version, *headers, b"Connection: close", b"", b""]))
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("header", "hosts", "status"),
    [
        (b"localhost:8000", (), 200),
        (b"LOCALHOST.", (), 200),
        (b"127.0.0.1:8000", (), 200),
        (b"10.1.2.3", (), 200),
        (b"[::1]:8000", (), 200),
        (b"kuvasz.example.org:8000", (), 421),
        (b"kuvasz.example.org:8000", ("Kuvasz.example.org",), 200),
        (b"localhost.example.org", (), 421),
        (b"127.0.0.1.example.org", (), 421),
        (b"example.org", ("*",), 200),
        (b"", (), 421),
    ],
)
def test_who_asks_for_a_name_of_others_is_sent_away(header: bytes, hosts: tuple[str, ...], status: int) -> None:
    async def run() -> tuple[int, str]:
        async with served(*hosts) as place:
            return await ask(place, b"Host: " + header)

    assert asyncio.run(run())[0] == status


def test_who_is_no_browser_may_name_none() -> None:
    async def run() -> tuple[int, str]:
        async with served() as place:
            return await ask(place, version=b"1.0")

    assert asyncio.run(run()) == (200, "open")


@pytest.mark.parametrize("header", [b"X-Long: " + b"x" * 5000, b"\r\n".join(b"X-%d: y" % i for i in range(100))])
def test_headers_are_limited(header: bytes) -> None:
    async def run() -> tuple[int, str]:
        async with served() as place:
            return await ask(place, b"Host: localhost", header)

    assert asyncio.run(run())[0] == 400


def test_connections_are_limited_and_one_that_ends_makes_room() -> None:
    async def run() -> None:
        async with served() as place:
            idle = [await asyncio.open_connection(*place) for _ in range(door.MOST_CONNECTIONS)]
            while True:  # they are accepted one after another
                reader, writer = await asyncio.open_connection(*place)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(0.1):
                        assert await reader.read() == b""
                        break
                writer.close()
            writer.close()
            idle.pop()[1].close()
            while True:
                with contextlib.suppress(IndexError, ConnectionError):
                    assert (await ask(place, b"Host: localhost"))[0] == 200
                    break
            for _, one in idle:
                one.close()

    asyncio.run(run())


def test_a_page_of_another_origin_is_told_nothing_that_its_browser_would_let_it_read(tmp_path: Path) -> None:
    async def ask(client: aiohttp.ClientSession, url: str) -> tuple[int, int, list[str]]:
        wanted = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        before = await client.options(f"{url}/api/db", headers=wanted)
        answer = await client.get(f"{url}/status", headers=wanted)
        headers = [*before.headers, *answer.headers]
        return before.status, answer.status, [one for one in headers if one.startswith("Access-Control")]

    assert AdminWorld(tmp_path).live(ask) == (405, 200, [])
