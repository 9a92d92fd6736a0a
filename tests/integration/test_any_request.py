"""A client that schemathesis makes of the OpenAPI document drives the server: what the document lets through is
answered as the document says, what it forbids is refused, and nothing is an error of ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kuvasz.admin.api import openapi
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.api.verify_request import VerificationRequests
from kuvasz.admin.entries.source_shelf import SourceShelf
from kuvasz.admin.erasures.erasure_book import ErasureBook
from kuvasz.admin.server import serve
from tests.support.looks import looks
from tests.support.writable_world import WritableWorld

schemathesis = pytest.importorskip("schemathesis", reason="`make setup-dev` installs it")
checks = pytest.importorskip("schemathesis.checks")


class Client:
    """A server with a map that may be changed, and a token."""

    def __init__(self, folder: Path) -> None:
        self._world = WritableWorld(folder)
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.url = ""
        self.token = ""

    async def _serve(self) -> None:
        world = self._world
        world.app.restart = lambda: None  # type: ignore[method-assign]
        book = ErasureBook(world.app.config.pipeline.state_folder)
        async with serve(world.app, world.stored, (), world.loaded, looks(), book) as server:
            self.url, self.token = str(server.url), server.token
            self._is_up.set()
            await self._end.wait()

    def __enter__(self) -> Client:
        self._thread.start()
        assert self._is_up.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VerificationRequests.__init__, "__defaults__", (("echo", "[]"),))
        patch.setenv("PW", "a-secret")
        patch.setattr(SourceShelf, "_tables", lambda *_: [])
        with Client(tmp_path_factory.mktemp("world")) as found:
            yield found


DOCUMENT = openapi.document(ROUTES)
OPERATIONS = {f"{route.method} {route.path}": route for route in ROUTES}


@pytest.mark.parametrize("title", OPERATIONS)
def test_what_the_document_says_of_a_route_is_so(client: Client, title: str) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    route = OPERATIONS[title]
    operation = schema[route.path][route.method]
    headers = {"Authorization": f"Bearer {client.token}"}

    @settings(
        max_examples=8, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        response = case.call(base_url=client.url, headers=headers)
        assert response.status_code in route.answers, (response.status_code, response.text)
        case.validate_response(response, excluded_checks=[checks.not_a_server_error, checks.positive_data_acceptance])

    ask()
