"""Whoever reaches the HTTP server learns no row, and no web page in somebody's browser learns anything."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin.observer import Observer
from kuvasz.admin.server import serve
from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.errors import DecodeError, SchemaError
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.state.store import state_of
from kuvasz.state.tables import State


@pytest.fixture
def app(tmp_path: Path) -> App:
    document = {
        "lake": {"namespace": "shop"},
        "pipeline": {"state": str(tmp_path / "state")},
        "server": {"address": "127.0.0.1:0", "hosts": ["kuvasz.example.org"]},
        "databases": [
            {"database": "shop", "urls": [{"url": "postgresql://127.0.0.1:1/none"}], "tables": {"a": None, "b": None}}
        ],
    }
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps(document))
    made = App(load(file, {}).config, lake=MemoryLake())
    for name, error in (("a", DecodeError("value 'Jane Doe' in row 7", hint="look")), ("b", SchemaError("no key"))):
        made.states.add(f"shop.{name}", "shop", f"public.{name}")
        made.states.set(f"shop.{name}", "shop", State.ERROR, error)
    return made


def asked(app: App, path: str, headers: dict[str, Any], method: str = "GET") -> tuple[int, dict[str, Any]]:
    """Ask the server; ``TOKEN`` in a header stands for the token."""

    def ask() -> tuple[int, dict[str, Any]]:
        address = state_of(app.config).address.find()
        assert address is not None
        connection = http.client.HTTPConnection(address.url.removeprefix("http://"), timeout=20)
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value.replace(b"TOKEN", address.token.encode()))
        connection.endheaders(b"")
        with connection.getresponse() as answer:
            found: dict[str, Any] = json.load(answer)
            return answer.status, found

    async def run() -> tuple[int, dict[str, Any]]:
        async with serve(app, state_of(app.config)):
            return await asyncio.to_thread(ask)

    return asyncio.run(run())


def messages(answer: dict[str, Any]) -> list[str]:
    return [table["error"]["message"] for source in answer["sources"] for table in source["tables"]]


def test_what_quotes_a_row_is_shown_to_who_has_the_token(app: App) -> None:
    status, answer = asked(app, "/status", {})
    assert status == 200
    assert "Jane" not in json.dumps(answer)
    assert messages(answer) == [
        "it may quote a row, so it is shown to those who have the token: kuvasz status",
        "no key",
    ]
    _, answer = asked(app, "/status", {"Authorization": b"Bearer TOKEN"})
    assert messages(answer) == ["value 'Jane Doe' in row 7", "no key"]


@pytest.mark.parametrize("path", ["/status", "/metrics", "/livez", "/nowhere"])
def test_a_page_in_a_browser_that_has_a_name_of_its_own_is_sent_away(app: App, path: str) -> None:
    status, answer = asked(app, path, {"Host": b"rebound.example.com:8000"})
    assert (status, answer["error"]) == (421, "nobody is called rebound.example.com here")


def test_pages_are_made_off_the_loop_of_the_readers(app: App) -> None:
    async def run() -> str:
        observer = Observer(app)
        try:
            return await observer.show(lambda _: threading.current_thread().name)
        finally:
            observer.close()

    assert asyncio.run(run()).startswith("observer")


def test_names_of_the_map_are_known(app: App) -> None:
    assert asked(app, "/livez", {"Host": b"kuvasz.example.org:8000"})[0] == 200


@pytest.mark.parametrize("given", [b"\xff\xfe", b"Bearer \xff", b"Bearer TOKEN2", b""])
def test_whatever_is_no_token_is_refused(app: App, given: bytes) -> None:
    status, answer = asked(app, "/api/retry", {"Authorization": given}, "POST")
    assert (status, answer["error"]) == (401, "the token is missing or wrong")
