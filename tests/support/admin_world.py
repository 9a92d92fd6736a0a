"""A small application that stands still behind its HTTP server, to be asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp

from kuvasz.admin.erasures.erasure_book import ErasureBook
from kuvasz.admin.looks.look_answers import Look
from kuvasz.admin.server import serve
from kuvasz.app import App
from kuvasz.config.load import Loaded, load
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.state.memory import MemoryState

T = TypeVar("T")

MAP: dict[str, Any] = {
    "lake": {"namespace": "shop"},
    "databases": [
        {"database": "shop", "urls": [{"url": "postgresql:///shop", "sid": "eu"}],
         "tables": {"items": None, "others": None}}
    ],
}  # fmt: skip


class AdminWorld:
    """An application of two tables, whose commands are written down."""

    def __init__(
        self, folder: Path, address: str | None = "127.0.0.1:0", url: str = "postgresql:///shop", **server: Any
    ) -> None:
        file = folder / "map.yaml"
        (group,) = MAP["databases"]
        state = {"pipeline": {"state": str(folder / "state")}, "server": {"address": address, **server}}
        file.write_text(json.dumps(MAP | state | {"databases": [group | {"urls": [{"url": url, "sid": "eu"}]}]}))
        self.app = App(load(file, {}).config, lake=MemoryLake())
        self.loaded: Loaded | None = None
        self.looks: dict[str, Look] = {}
        self.stored = MemoryState()
        self.erasures: ErasureBook | None = None
        self.commands: list[tuple[str, str]] = []
        self.stand_still()

    def stand_still(self) -> None:
        """Have the application's commands written down, and nothing done."""
        verbs = ("pause", "resume", "retry", "resync")
        for sync in self.app.sources:
            commands: Any = SimpleNamespace(**{verb: self._note(verb) for verb in verbs})
            sync._parts = SimpleNamespace(commands=commands, setup=SimpleNamespace(target_lsn=None))  # type: ignore[assignment]

    def _note(self, verb: str) -> Callable[[str], None]:
        return lambda key: self.commands.append((verb, key))

    def live(self, body: Callable[[aiohttp.ClientSession, str], Awaitable[T]], *secrets: str) -> T:
        """Serve while a client asks."""

        async def run() -> T:
            async with (
                serve(self.app, self.stored, secrets, self.loaded, self.looks, self.erasures) as server,
                aiohttp.ClientSession() as client,
            ):
                assert server.url is not None
                async with asyncio.timeout(30):
                    return await body(client, server.url)

        return asyncio.run(run())

    def ask(
        self, path: str, *, token: bool | str = True, method: str = "POST", body: Any = None, secrets: Any = ()
    ) -> tuple[int, Any]:
        """Return status and answer.

        Args:
            path: What is asked for.
            token: Which is brought; True: the own one; False: none.
            method: How it is asked for.
            body: What is brought; JSON is made of it, unless it is a text.
            secrets: What is to be hidden.
        """

        async def run(client: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
            address = self.stored.address.find()
            assert address is not None
            headers = {"Authorization": f"Bearer {address.token if token is True else token}"} if token else {}
            data = body if isinstance(body, str) else json.dumps({} if body is None else body)
            given = data if method != "GET" else None
            async with client.request(method, url + path, data=given, headers=headers) as answer:
                text = await answer.text()
                return answer.status, json.loads(text) if text.startswith(("{", "[")) else text

        return self.live(run, *secrets)
