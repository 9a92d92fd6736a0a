"""The HTTP server of an application that stands still: who may ask for what, and what is answered."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import pytest

from kuvasz.admin import views
from kuvasz.admin.server import AdminServer, serve
from kuvasz.admin.views import ErrorView
from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.errors import ConfigError, LakeError
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.ports import Upkeep
from kuvasz.state.memory import MemoryAddress
from kuvasz.state.tables import State

T = TypeVar("T")

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"

MAP = {
    "lake": {"namespace": "shop"},
    "databases": [
        {"database": "shop", "urls": [{"url": "postgresql:///shop", "sid": "eu"}],
         "tables": {"items": None, "others": None}}
    ],
}  # fmt: skip


class World:
    """An application of two tables, whose commands are written down."""

    def __init__(self, folder: Path, address: str | None = "127.0.0.1:0") -> None:
        file = folder / "map.yaml"
        state = {"pipeline": {"state": str(folder / "state")}, "server": {"address": address}}
        file.write_text(json.dumps(MAP | state))
        self.app = App(load(file, {}).config, lake=MemoryLake())
        self.stored = MemoryAddress()
        self.commands: list[tuple[str, str]] = []
        (sync,) = self.app.sources
        verbs = ("pause", "resume", "retry", "resync")
        commands: Any = SimpleNamespace(**{verb: self._note(verb) for verb in verbs})
        sync._parts = SimpleNamespace(commands=commands, setup=SimpleNamespace(target_lsn=None))  # type: ignore[assignment]

    def _note(self, verb: str) -> Callable[[str], None]:
        return lambda key: self.commands.append((verb, key))

    def live(self, body: Callable[[aiohttp.ClientSession, str], Awaitable[T]], *secrets: str) -> T:
        """Serve while a client asks."""

        async def run() -> T:
            async with serve(self.app, self.stored, secrets) as server, aiohttp.ClientSession() as client:
                assert server.url is not None
                async with asyncio.timeout(30):
                    return await body(client, server.url)

        return asyncio.run(run())

    def ask(self, path: str, *, token: bool = True, method: str = "POST", body: Any = None, secrets: Any = ()):
        """Return status and answer."""

        async def run(client: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
            address = self.stored.find()
            assert address is not None
            headers = {"Authorization": f"Bearer {address.token}"} if token else {}
            data = body if isinstance(body, str) else json.dumps({} if body is None else body)
            given = data if method == "POST" else None
            async with client.request(method, url + path, data=given, headers=headers) as answer:
                text = await answer.text()
                return answer.status, json.loads(text) if text.startswith("{") else text

        return self.live(run, *secrets)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_url_and_token_are_left_for_the_verbs_while_it_serves(world: World) -> None:
    async def look(_: object, url: str) -> str:
        address = world.stored.find()
        assert address is not None
        assert address.url == url
        return address.token

    assert len(world.live(look)) > 30
    assert world.stored.find() is None


def test_without_an_address_nothing_is_served(tmp_path: Path) -> None:
    world = World(tmp_path, None)

    async def run() -> dict[str, Any]:
        async with serve(world.app, world.stored) as server:
            assert server.url is None
            return await server.observer.show(lambda now: views.status(now, ErrorView()))

    assert asyncio.run(run())["phase"] == "starting", "who is in the process may see it all the same"
    assert world.stored.find() is None


def test_an_address_that_is_taken_is_told(world: World, tmp_path: Path) -> None:
    async def again(_: object, url: str) -> str:
        (tmp_path / "other").mkdir()
        other = World(tmp_path / "other", url.removeprefix("http://"))
        with pytest.raises(ConfigError) as caught:
            async with serve(other.app, other.stored):
                pass
        return caught.value.message

    told = world.live(again)
    assert told.startswith("server.address: cannot listen on 127.0.0.1:")
    assert told.endswith(": address already in use")


def test_who_only_looks_needs_no_token(world: World) -> None:
    world.app.phase = "running"
    status, shown = world.ask("/status", token=False, method="GET")
    tables = [table["target"] for source in shown["sources"] for table in source["tables"]]
    assert (status, sorted(tables)) == (200, ["shop.items", "shop.others"])
    assert world.ask("/livez", token=False, method="GET") == (200, {"ok": True})
    status, verdict = world.ask("/readyz", token=False, method="GET")
    assert (status, verdict["ok"]) == (503, False)
    status, metrics = world.ask("/metrics", token=False, method="GET")
    assert (status, "kuvasz_" in metrics) == (200, True)


@pytest.mark.parametrize("path", ["/api/pause", "/api/resume", "/api/retry", "/api/resync", "/api/maintain"])
def test_who_changes_something_needs_it(world: World, path: str) -> None:
    status, refused = world.ask(path, token=False, body={"table": "shop.items"})
    assert (status, refused["error"]) == (401, "the token is missing or wrong")
    assert world.commands == []


def test_a_command_goes_to_the_tables_that_it_names(world: World) -> None:
    status, done = world.ask("/api/pause", body={"table": "shop.items"})
    assert (status, done) == (202, {"verb": "pause", "tables": [{"source": "shop_eu", "target": "shop.items"}]})
    assert world.commands == [("pause", "shop.items")]


def test_a_table_that_the_map_has_not_is_told_with_those_it_has(world: World) -> None:
    status, refused = world.ask("/api/pause", body={"table": "shop.nowhere"})
    assert (status, refused["hint"]) == (404, "it has: shop.items, shop.others")
    assert "shop.nowhere" in refused["error"]


def test_a_command_that_does_not_fit_is_refused(world: World) -> None:
    status, refused = world.ask("/api/resume", body={"table": "shop.items"})
    assert (status, world.commands) == (409, [])
    assert refused["hint"] == "it has not been looked at yet: see `kuvasz status`"
    world.app.states.pause("shop.items", "shop_eu")
    assert world.ask("/api/resume", body={"table": "shop.items"})[0] == 202


@pytest.mark.parametrize("body", ["", "[]", "{", '"pause"'])
def test_what_is_no_object_is_no_command(world: World, body: str) -> None:
    status, refused = world.ask("/api/pause", body=body)
    assert (status, refused["error"]) == (400, "POST /api/pause: the body is no json object")


def test_an_unknown_path_says_which_there_are(world: World) -> None:
    status, refused = world.ask("/nowhere", method="GET")
    assert status == 404
    assert "/readyz" in refused["hint"]


def test_tables_are_looked_after_when_that_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def run(target: str, *, full: bool) -> Upkeep:
        asked.append((target, full))
        if target == "shop.others":
            raise LakeError("no geheim here")
        return Upkeep(
            target=target, files=1, bytes=2, rows=3, dead_rows=0, delete_files=0, snapshots=1, rewrites=1,
            last_at=None, next_at=None, changed_bytes=0, rewritten_bytes=0,
        )  # fmt: skip

    monkeypatch.setattr(world.app.lake.maintenance, "run", run)
    body = {"targets": ["shop.items", "shop.others"], "full": True}
    status, done = world.ask("/api/maintain", body=body, secrets=["geheim"])
    assert (status, asked) == (200, [("shop.items", True), ("shop.others", True)])
    assert "geheim" not in json.dumps(done)
    for targets in (["shop.nowhere"], "shop.items", None):
        assert world.ask("/api/maintain", body={"targets": targets})[0] == 404


def test_a_person_may_be_shown_what_quotes_rows_and_nobody_else(world: World) -> None:
    error = LakeError("key (geheim) is there twice")
    world.app.states.set("shop.items", "shop_eu", State.ERROR, error)
    everybody = json.dumps(world.ask("/status", token=False, method="GET")[1])
    assert "is there twice" not in everybody
    trusted = json.dumps(world.ask("/status", method="GET", secrets=["geheim"])[1])
    assert "geheim" not in trusted, "a secret is shown to nobody"
    assert "is there twice" in trusted


def test_a_map_that_is_from_no_file_is_not_read_again(world: World) -> None:
    status, refused = world.ask("/api/map/reload")
    assert (status, refused["error"]) == (409, "the map is from no file: it cannot be read again")
    assert world.ask("/api/map/reload", token=False)[0] == 401


@pytest.mark.parametrize("body", [{"dry_run": "true"}, {"dry_run": 1}, {"dry_run": None}, {"dryrun": True}])
def test_a_reload_that_is_asked_for_in_other_words_is_none(world: World, body: dict[str, Any]) -> None:
    assert world.ask("/api/map/reload", body=body)[0] == 400


def test_the_docs_have_every_path_and_no_other(tmp_path: Path) -> None:
    application = AdminServer(World(tmp_path).app).application()
    served = {route.resource.canonical for route in application.router.routes() if route.resource is not None}
    section = PAGE.read_text("utf-8").partition("\n## HTTP\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {path for row in rows for path in re.findall(r"(/[a-z/]+)`", row)} == served
