from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kuvasz.admin.api import audit
from kuvasz.admin.api.audit import Audit, AuditEntry
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.errors import LakeError
from kuvasz.events import Event, heard_by
from tests.support.admin_world import AdminWorld

ANN = "ann-0123456789-ann"


@contextlib.contextmanager
def heard() -> Iterator[list[tuple[Event, dict[str, Any]]]]:
    """Hear of what is told of requests."""
    found: list[tuple[Event, dict[str, Any]]] = []
    with heard_by(lambda event, facts: found.append((event, dict(facts))) if event.code == "audit" else None):
        yield found


@pytest.fixture
def world(tmp_path: Path) -> AdminWorld:
    return AdminWorld(tmp_path, tokens=[{"name": "ann", "role": "operator", "token": ANN}])


def test_a_request_is_told_with_who_what_and_what_came_of_it(world: AdminWorld) -> None:
    with heard() as found:
        world.ask("/api/pause", token=ANN, body={"table": "items", "sid": "eu", "by": "somebody"})
        world.ask("/api/resync", body={"sid": "eu", "by": "bob@laptop"})
        world.ask("/api/maintain", token=ANN, body={"targets": ["shop.items", "shop.others"]})
    assert found == [
        (
            Event.AUDIT_DONE,
            {"by": "ann", "what": "POST /api/pause", "target": "table 'items' of source 'eu'", "status": 202,
             "client": "127.0.0.1", "result": "done"},
        ),
        (
            Event.AUDIT_DONE,
            {"by": "local", "person": "bob@laptop", "what": "POST /api/resync", "target": "source 'eu'",
             "status": 202, "client": "127.0.0.1", "result": "done"},
        ),
        (
            Event.AUDIT_DONE,
            {"by": "ann", "what": "POST /api/maintain", "target": "shop.items, shop.others", "status": 200,
             "client": "127.0.0.1", "result": "done"},
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "token", "body", "status", "facts"),
    [
        ("/api/map/reload", ANN, {}, 403, {"by": "ann", "reason": "POST /api/map/reload needs the role admin, and the"
         " token of 'ann' has operator"}),
        ("/api/map/reload", True, {"dry_run": True, "by": "b"}, 409, {"by": "local", "person": "b",
         "target": "the map, as a trial", "reason": "the map is from no file: it cannot be read again"}),
        ("/api/pause", ANN, {"table": "nobody"}, 404, {"by": "ann", "target": "table 'nobody'",
         "reason": "the map has no table 'nobody'"}),
        ("/api/pause", ANN, "{", 400, {"by": "ann", "reason": "the body is no JSON object"}),
        ("/api/pause", ANN, "x" * (65 << 10), 413, {"by": "ann", "reason": "request entity too large"}),
        ("/api/pause", "wrong", {}, 401, {"by": "nobody", "reason": "the token is missing or wrong"}),
    ],
)  # fmt: skip
def test_one_that_is_refused_is_told_too(
    world: AdminWorld, path: str, token: str | bool, body: Any, status: int, facts: dict[str, str]
) -> None:
    with heard() as found:
        assert world.ask(path, token=token, body=body)[0] == status
    common = {"what": f"POST {path}", "status": status, "client": "127.0.0.1", "result": "refused"}
    assert found == [(Event.AUDIT_REFUSED, common | facts)]


def test_who_only_looks_is_not_told(world: AdminWorld) -> None:
    with heard() as found:
        for path in ("/status", "/livez", "/metrics", "/api/docs", "/api/support", "/api/pause"):
            for token in (True, False):
                world.ask(path, token=token, method="GET")
    assert found == []


def test_no_token_is_told(world: AdminWorld, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kuvasz"), heard() as found:
        for token in (ANN, "wrong-0123456789-wrong"):
            world.ask("/api/pause", token=token, body={"table": "items"})
    assert len(found) == 2
    told = f"{found} {[vars(record) for record in caplog.records]}"
    assert ANN not in told
    assert "wrong-0" not in told


def test_what_fails_is_told_with_its_error_or_without_an_answer() -> None:
    entry = AuditEntry(what="POST /x", client="h", by="ann")
    with heard() as found:
        for error in (LakeError("away"), RuntimeError("bug"), web.HTTPNotFound(), RequestRefused(409, "no")):
            with pytest.raises(type(error)), Audit().over(entry):
                raise error
            entry.status = None
    shown = [(event, facts.get("status"), facts.get("error"), facts.get("reason")) for event, facts in found]
    assert shown == [
        (Event.AUDIT_FAILED, 500, "away", None),
        (Event.AUDIT_FAILED, None, None, None),
        (Event.AUDIT_REFUSED, 404, None, "not found"),
        (Event.AUDIT_REFUSED, 409, None, "no"),
    ]


def test_nobody_fills_the_log() -> None:
    now = 0.0
    made = Audit(lambda: now)
    with heard() as found:
        for step in range(25):
            now = step * audit.PAUSE_S / 10
            with pytest.raises(RequestRefused), made.over(AuditEntry(what="POST /x", client="h")):
                raise RequestRefused(401, "no")
    assert [facts.get("untold") for _, facts in found] == [None, 9, 9]


def test_texts_of_others_are_cut() -> None:
    with heard() as found, Audit().over(AuditEntry(what="POST /x", client="h", by="ann", target="x" * 1000)):
        pass
    assert len(found[0][1]["target"]) == 200
