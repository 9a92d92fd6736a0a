from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from kuvasz.admin.api import openapi
from kuvasz.admin.api.answers import Answers
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.live_map import LiveMap
from kuvasz.admin.observer import Observer
from tests.support.admin_world import AdminWorld


def test_every_route_of_the_table_has_a_handler_and_the_reverse(tmp_path: Path) -> None:
    app = AdminWorld(tmp_path).app

    async def handlers() -> set[str]:
        observer = Observer(app)
        try:
            return set(Answers(app, observer, LiveMap(app), "geheim", str).handlers())
        finally:
            observer.close()

    assert asyncio.run(handlers()) == {route.name for route in ROUTES}


def test_the_api_is_told_to_whoever_asks(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path)
    assert world.ask("/api/openapi.json", token=False, method="GET") == (200, openapi.document(ROUTES))

    async def look(client: aiohttp.ClientSession, url: str) -> tuple[str, str, str]:
        async with client.get(f"{url}/api/docs") as answer:
            return answer.headers["Content-Type"], answer.headers["Content-Security-Policy"], await answer.text()

    kind, policy, text = world.live(look)
    assert (kind, policy.startswith("default-src 'none'")) == ("text/html; charset=utf-8", True)
    assert "POST /api/pause" in text
