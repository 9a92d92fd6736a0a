"""Requests that pages print are carried out by a running kuvasz to the letter, and what it tells is as printed."""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.api.verify_request import VerificationRequests
from kuvasz.admin.entries.source_shelf import SourceShelf
from kuvasz.admin.erasures.erasure_book import ErasureBook
from kuvasz.admin.notices import notice
from kuvasz.config.model import NoticeKind
from tests.support.looks import looks
from tests.support.writable_world import WritableWorld

DOCS = Path(__file__).parents[2] / "docs"
ROUTE = r"^## ([A-Z]+ /\S*)\n.*?```sh\n(curl .*?)\n```"
PRINTED = dict(re.findall(ROUTE, (DOCS / "http.md").read_text("utf-8"), re.MULTILINE | re.DOTALL))
OPERATING = (DOCS / "operating.md").read_text("utf-8")

#: What of this world keeps some of them from being done, which are understood all the same.
NOT_DONE = {
    "GET /readyz": (503, "kuvasz is starting"),
    "POST /api/resume": (409, "is not paused"),
    "POST /api/retry": (409, "is not in error"),
    "POST /api/cut": (409, "it is new"),
    "POST /api/publish": (404, "is written on the branch 'staging'"),
    "POST /api/map/import": (409, "from the next start on"),
    "GET /api/erasure/{id}": (404, "there is no erasure"),
    "POST /api/db": (409, "is the name of"),
    "DELETE /api/db/{id}": (409, "remove these first"),
    "POST /api/url": (409, "the sid 'eu' is that of"),
    "POST /api/tbl": (409, "has the table public.items already"),
    "POST /api/map/{id}/clone": (409, "has the table public.items already"),
    "POST /api/map/{id}/create": (409, "has the table public.items already"),
}

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WritableWorld:
    monkeypatch.setenv("PW", "a-secret")
    monkeypatch.setattr(VerificationRequests.__init__, "__defaults__", (("echo", "[]"),))
    monkeypatch.setattr(SourceShelf, "_tables", lambda *_: [])
    found = WritableWorld(tmp_path)
    found.looks = dict(looks())
    found.erasures = ErasureBook(found.app.config.pipeline.state_folder)
    found.app.restart = lambda: None  # type: ignore[method-assign]
    return found


def carried_out(world: WritableWorld, script: str) -> str:
    """Carry a script out as it is printed, but for where the server is; return what it says."""

    async def run(_: aiohttp.ClientSession, url: str) -> str:
        address = world.stored.address.find()
        assert address is not None
        done = await asyncio.create_subprocess_shell(
            re.sub(r"(http://127\.0\.0\.1|localhost):80\d\d", url, script), stdout=asyncio.subprocess.PIPE,
            cwd=world.file.parent, env={"TOKEN": address.token, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        said, _ = await done.communicate()
        return said.decode()

    return world.live(run)


def printed(first: str) -> str:
    """Return the example of the page about operation that begins so."""
    found = re.search(rf"```\w+\n({re.escape(first)}.*?)```", OPERATING, re.DOTALL)
    assert found is not None
    return found[1]


def test_each_route_has_one() -> None:
    assert [*PRINTED] == [route.title for route in ROUTES]


@needs_curl
@pytest.mark.parametrize("title", PRINTED)
def test_a_request_is_carried_out(title: str, world: WritableWorld) -> None:
    script = PRINTED[title].replace("curl ", "curl -sS -o answer -w '%{http_code}' ", 1)
    status, told = int(carried_out(world, script)), (world.file.parent / "answer").read_text()
    expected, why = NOT_DONE.get(title, (202 if status == 202 else 200, ""))
    assert (status, why in told) == (expected, True), told


@needs_curl
@needs_jq
def test_the_map_is_given_out_and_taken_in_again(world: WritableWorld) -> None:
    told = carried_out(world, printed("curl -H").replace("curl ", "curl -sS "))
    assert (world.file.parent / "copy.yaml").read_text() == world.text
    assert json.loads(told).get("changed") == [], told


@needs_curl
def test_a_group_is_added_entry_by_entry(world: WritableWorld) -> None:
    for path in ("tbl/1", "tbl/2", "url/1", "url/2", "db/1"):
        assert world.ask(f"/api/{path}", method="DELETE")[0] == 200
    told = carried_out(world, printed("ask() {").replace("curl -s", "curl -sS -w '\\n'"))
    shown = [json.loads(line) for line in told.splitlines()]
    assert [one["id"] for one in shown] == [1, 3, 1], told
    assert [one.name for one in world.taken[-1].added] == ["shop_de"]


def test_a_webhook_is_told_what_is_printed() -> None:
    shown = json.loads(printed('{"kuvasz"'))
    commit, error = shown["entries"]
    at = datetime.datetime(2026, 11, 26, 20, tzinfo=datetime.UTC)
    row: dict[str, Any] = {**commit, "committed_at": at, "target": commit["table"]}
    event = {
        **error, "happened_at": at + datetime.timedelta(seconds=1), "table_name": error["table"], "fields": "{}",
    }  # fmt: skip
    made = [notice.of_commit(row, 0), notice.of_event(NoticeKind.ERROR, event)]
    assert made == [commit, error]
    body = json.loads(notice.body_of("hooks.example.com", 42, made))
    assert (list(body), body["entries"]) == (list(shown), shown["entries"])
