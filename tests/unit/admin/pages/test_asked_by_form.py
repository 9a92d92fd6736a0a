"""What is done with tables, asked without a script."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.pages.action_pages import done_page, question_page, refused_page, verb_of
from kuvasz.admin.pages.asked_by_form import ACTIONS
from tests.support.admin_world import AdminWorld
from tests.support.seen_page import SeenPage

HOSTILE = "'\"><script>alert(1)</script>"
PAUSE = next(route for route in ROUTES if route.name == "pause")


def send(world: AdminWorld, path: str, body: str | None = None, **fields: str) -> tuple[int, str, str]:
    async def ask(client: aiohttp.ClientSession, url: str) -> tuple[int, str, str]:
        address = world.stored.address.find()
        assert address is not None
        given = {name: address.token if value == "own" else value for name, value in fields.items()}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        data = body if body is not None else urllib.parse.urlencode(given)
        async with client.post(url + path, data=data, headers=kind) as answer:
            assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
            return answer.status, answer.content_type, await answer.text()

    return world.live(ask)


def test_a_form_does_what_the_api_does(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path)
    status, kind, page = send(world, "/api/pause", token="own", table="shop.items", sid="shop_eu")
    assert (status, kind) == (202, "text/html")
    assert " done " in SeenPage(page).text
    assert world.commands == [("pause", "shop.items")]


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"table": "shop.items"}, 401, "the token is missing or wrong"),
        ({"token": "another", "table": "shop.items"}, 401, "the token is missing or wrong"),
        ({"token": "ö€", "table": "shop.items"}, 401, "the token is missing or wrong"),
        ({"token": "own", "table": "shop.none"}, 404, "the map has no table 'shop.none'"),
        ({"token": "own", "table": "shop.items", "more": "x"}, 400, "the body has the unknown field 'more'"),
        ({"token": "own"}, 400, "table and sid are missing"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_said_by_a_page(tmp_path: Path, fields: dict[str, str], status: int, told: str) -> None:
    world = AdminWorld(tmp_path)
    found, kind, page = send(world, "/api/pause", **fields)
    assert (found, kind) == (status, "text/html")
    assert told in SeenPage(page).text
    assert ("data-forget>" in page) == (status == 401)
    assert world.commands == []


def test_a_program_that_calls_its_json_a_form_is_answered_by_json(tmp_path: Path) -> None:
    """As `curl -d` and urllib do."""
    world = AdminWorld(tmp_path)

    async def ask(client: aiohttp.ClientSession, url: str) -> tuple[int, str]:
        address = world.stored.address.find()
        assert address is not None
        headers = {
            "Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Bearer {address.token}",
        }  # fmt: skip
        async with client.post(f"{url}/api/pause", data='{"table": "shop.items"}', headers=headers) as answer:
            return answer.status, answer.content_type

    assert world.live(ask) == (202, "application/json")
    assert world.commands == [("pause", "shop.items")]


def test_bytes_that_are_no_form_do_nothing(tmp_path: Path) -> None:
    status, _, _ = send(
        AdminWorld(tmp_path), "/api/pause", body="table=%FF%FE&token=\ud800".encode("utf-8", "replace").decode()
    )
    assert status == 401


def test_no_other_route_takes_a_form(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path)

    async def ask(client: aiohttp.ClientSession, url: str) -> int:
        address = world.stored.address.find()
        assert address is not None
        async with client.post(f"{url}/api/map/reload", data={"token": address.token}) as answer:
            return answer.status

    assert world.live(ask) == 401


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_every_action_is_a_route_and_its_page_sends_it_there(name: str) -> None:
    route = next(route for route in ROUTES if route.name == name)
    page = question_page(route, {"table": ["shop.items"], "sid": ["shop_eu"]})
    assert f'method="post" action="{route.path}"' in page
    assert f" {verb_of(route)} shop.items of shop_eu" in SeenPage(page).text
    assert 'type="password"' in page
    assert 'value="shop.items"' in page


@pytest.mark.parametrize("name", ["table", "sid", "targets"])
def test_whatever_is_asked_for_is_shown_as_a_text(name: str) -> None:
    given: dict[str, Any] = {name: [HOSTILE], HOSTILE: [HOSTILE]}
    refused = RequestRefused(409, HOSTILE, HOSTILE)
    for page in (question_page(PAUSE, given), done_page(PAUSE, given, HOSTILE), refused_page(PAUSE, given, refused)):
        assert HOSTILE in SeenPage(page).text
        assert page.count("<script") == 1, "its own"
