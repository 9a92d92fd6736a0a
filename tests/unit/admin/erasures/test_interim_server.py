"""What is answered while rows are erased."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console

from kuvasz.admin.erasures import interim_server
from kuvasz.admin.erasures.erasure_book import ErasureBook, ErasureOrder
from kuvasz.config.load import load
from kuvasz.state.memory import MemoryState
from kuvasz.verbs import remote

MAP = """\
pipeline: {{state: state}}
server: {{address: {address}}}
databases:
- {{database: shop, urls: [{{url: "postgresql://a/x", sid: de}}], tables: {{items: }}}}
"""


def test_it_lives_is_not_ready_and_says_how_far_it_is(tmp_path: Path) -> None:
    file, stored, book = tmp_path / "map.yaml", MemoryState(), ErasureBook(tmp_path / "state")
    file.write_text(MAP.format(address='"127.0.0.1:0"'))
    name = book.note(ErasureOrder(sid="de"), "ann")["id"]

    async def run() -> dict[str, tuple[int, Any]]:
        async with interim_server.serve(load(file, {}), stored, book), aiohttp.ClientSession() as client:
            address = stored.address.find()
            assert address is not None
            found = {}
            bearer = {"Authorization": f"Bearer {address.token}"}
            for path, headers in (
                ("/livez", {}), ("/readyz", {}), ("/status", {}), ("/api/pause", bearer), ("/api/erasure", bearer),
                ("/api/erasure?", {}), (f"/api/erasure/{name}", bearer), ("/api/erasure/x", bearer),
            ):  # fmt: skip
                async with client.get(address.url + path, headers=headers) as answer:
                    found[path] = answer.status, await answer.json()
            return found

    found = asyncio.run(run())
    assert stored.address.find() is None
    assert {path: status for path, (status, _) in found.items()} == {
        "/livez": 200, "/readyz": 503, "/status": 200, "/api/pause": 503, "/api/erasure": 200, "/api/erasure?": 401,
        f"/api/erasure/{name}": 200, "/api/erasure/x": 404,
    }  # fmt: skip
    assert found["/api/erasure"][1][0]["id"] == name
    assert found["/api/pause"][1]["error"] == "rows are being erased: nothing is replicated meanwhile"
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(remote.render(found["/status"][1]))
    assert "erasing" in console.export_text()


def test_without_an_address_nothing_is_served(tmp_path: Path) -> None:
    file, stored = tmp_path / "map.yaml", MemoryState()
    file.write_text(MAP.format(address="null"))

    async def run() -> None:
        async with interim_server.serve(load(file, {}), stored, ErasureBook(tmp_path)):
            assert stored.address.find() is None

    asyncio.run(run())
