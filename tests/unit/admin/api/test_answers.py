from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import aiohttp
import pytest

from kuvasz.admin.api import openapi
from kuvasz.admin.api.answers import Answers
from kuvasz.admin.api.callers import Callers
from kuvasz.admin.api.cut_request import CutRequests
from kuvasz.admin.api.map_request import MapRequests
from kuvasz.admin.api.route import Route
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.api.verify_request import VerificationRequests
from kuvasz.admin.branches.publish_request import PublishRequests
from kuvasz.admin.entries.entry_changes import entry_handlers
from kuvasz.admin.erasures.erasure_answers import ErasureAnswers
from kuvasz.admin.live_map import LiveMap
from kuvasz.admin.looks.look_answers import LookAnswers
from kuvasz.admin.looks.look_routes import LOOK_ROUTES
from kuvasz.admin.observer import Observer
from kuvasz.admin.pages.pages import Pages
from kuvasz.admin.report.report import RunningReport
from kuvasz.admin.sources.source_answers import SourceAnswers
from kuvasz.config.model import Role
from kuvasz.config.secrets import Redactor
from kuvasz.errors import LakeError
from kuvasz.state.memory import MemoryNumbers
from kuvasz.state.tables import State
from tests.support.admin_world import AdminWorld


def test_every_route_of_the_table_has_a_handler_and_the_reverse(tmp_path: Path) -> None:
    app = AdminWorld(tmp_path).app

    async def handlers() -> set[str]:
        observer = Observer(app)
        report = RunningReport(observer, Redactor(), None)
        entries = entry_handlers(app, observer, LiveMap(app), MemoryNumbers(), Redactor())
        looks = LookAnswers(LiveMap(app), {}, Redactor()).handlers()
        try:
            sources = SourceAnswers(app, observer, LiveMap(app), Redactor(), {}).handlers()
            pages = Pages(app, observer, Redactor(), report.events_of).handlers(ROUTES)
            erasures = ErasureAnswers(app, LiveMap(app), {}, Redactor(), None).handlers()
            more = {**entries, **looks, **sources, **erasures, **pages, "cut": CutRequests(app).answer}
            more |= MapRequests(LiveMap(app), Redactor()).handlers()
            more["publish"] = PublishRequests(app, Redactor()).answer
            more["verify"] = VerificationRequests(LiveMap(app), Redactor()).answer
            return set(Answers(app, observer, LiveMap(app), report, Callers("geheim"), Redactor(), more).handlers())
        finally:
            observer.close()

    assert asyncio.run(handlers()) == {route.name for route in ROUTES}


TOKENS = {role: f"a-token-of-{role}s-0123456789" for role in Role}


@pytest.fixture
def shared(tmp_path: Path) -> AdminWorld:
    """Return a world in which each role has a token."""
    tokens = [{"name": f"a {role}", "role": role, "token": token} for role, token in TOKENS.items()]
    return AdminWorld(tmp_path, tokens=tokens)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.role is not None], ids=lambda route: route.name)
@pytest.mark.parametrize("role", Role)
def test_a_route_is_for_its_role_and_those_above(shared: AdminWorld, role: Role, route: Route) -> None:
    assert route.role is not None
    shared.app.restart = lambda: None  # type: ignore[method-assign]
    status, answer = shared.ask(route.example_path, token=TOKENS[role], method=route.method, body={"none": 1})
    if role.may(route.role) and route.writes_map:
        assert (status, answer["code"], answer["error"]) == (405, "not_allowed", "the map is read-only")
    elif role.may(route.role) and route in LOOK_ROUTES and not route.changes:
        assert status == 404, "this one has no verbs"
    elif role.may(route.role) and route.name in {"map_versions", "map_export"}:
        assert (status, answer["error"]) == (409, "the map is from no file")
    elif role.may(route.role) and route.body is None:
        known = {"map_create": 409, "erasure_get": 404}
        assert status == known.get(route.name, 200), "the map has this one"
    elif role.may(route.role):
        assert (status, answer["error"]) == (400, "the body has the unknown field 'none'")
    else:
        assert (status, answer) == (
            403,
            {
                "code": "not_allowed",
                "error": f"{route.title} needs the role {route.role}, and the token of 'a {role}' has {role}",
                "hint": "ask with another token, or give it that role in `server.tokens` of the map",
            },
        )
        assert TOKENS[role] not in json.dumps(answer)


def test_who_has_any_token_sees_all_there_is_to_see(shared: AdminWorld) -> None:
    shared.app.states.set("shop.items", "shop_eu", State.ERROR, LakeError("key (Jane) is there twice"))
    assert "Jane" in json.dumps(shared.ask("/status", method="GET", token=TOKENS[Role.VIEWER])[1])
    assert "Jane" not in json.dumps(shared.ask("/status", method="GET", token="another-token-0123456789")[1])


def test_the_owner_of_a_token_is_who_asks_whatever_he_says(
    shared: AdminWorld, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"table": "shop.items", "by": "somebody else"}
    with caplog.at_level(logging.INFO, "kuvasz"):
        assert shared.ask("/api/pause", token=TOKENS[Role.OPERATOR], body=body)[0] == 202
        assert shared.ask("/api/pause", body=body)[0] == 202
    told = [vars(record)["by"] for record in caplog.records if vars(record).get("event") == "pause"]
    assert told == ["a operator", "somebody else"]
    assert TOKENS[Role.OPERATOR] not in caplog.text


def test_who_has_no_token_is_told_which_kind_there_is(shared: AdminWorld) -> None:
    async def look(client: aiohttp.ClientSession, url: str) -> tuple[int, str]:
        async with client.post(f"{url}/api/pause") as answer:
            return answer.status, answer.headers["WWW-Authenticate"]

    assert shared.live(look) == (401, "Bearer")


def test_the_api_is_told_to_whoever_asks(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path)
    assert world.ask("/api/openapi.json", token=False, method="GET") == (200, openapi.document(ROUTES))

    async def look(client: aiohttp.ClientSession, url: str) -> tuple[str, str, str]:
        async with client.get(f"{url}/api/docs") as answer:
            return answer.headers["Content-Type"], answer.headers["Content-Security-Policy"], await answer.text()

    kind, policy, text = world.live(look)
    assert (kind, policy.startswith("default-src 'none'")) == ("text/html; charset=utf-8", True)
    assert "POST /api/pause" in text
