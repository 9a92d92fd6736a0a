"""kuvasz in a thread with its HTTP server, as the command runs it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from kuvasz.admin.server import serve
from kuvasz.app import App
from kuvasz.config.load import Loaded
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.state.store import state_of
from kuvasz.verbs.served.looks import LOOKS
from tests.support.lake import Pipeline


class ServedPipeline(Pipeline):
    """kuvasz with its HTTP server, as the command runs it."""

    url: str | None = None
    loaded: Loaded | None = None  #: what its map is read again by

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        lake = IcebergLake(self.config, state_of(self.config).witness, self.folder.session)
        self.app = App(self.config, lake=lake)
        await asyncio.to_thread(lake.open)
        async with serve(self.app, state_of(self.config), {"geheim-123"}, self.loaded, LOOKS) as server:
            self.url = server.url
            self._ready.set()
            return await self.app.run()

    def get(
        self, path: str, body: dict | None = None, token: str | None = None, method: str | None = None, *,
        timeout_s: float = 20.0,
    ) -> tuple[int, str]:  # fmt: skip
        """Ask the server; returns status and text."""
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}{path}", data=None if body is None else json.dumps(body).encode(), method=method
        )
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self) -> dict:
        """The one source of the status page."""
        (source,) = json.loads(self.get("/status")[1])["sources"]
        return source

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Sample name -> label values, by the labels' names -> value."""
        found: dict[str, dict] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found
