"""`notify`: every commit reaches a webhook, in order, signed, over a time without it and a restart."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kuvasz.admin.notices.notice import SIGNATURE, signature
from kuvasz.admin.notices.webhooks import Webhooks
from kuvasz.config.model import WebhookConfig
from kuvasz.state.store import state_of
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SECRET = "a-secret-0123456789"


class Hook(http.server.ThreadingHTTPServer):
    """A webhook; what is not signed is no entry."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.entries: list[dict[str, Any]] = []
        self.status = 200
        self.refused = 0

    def sequences(self, table: str) -> list[int]:
        return [one["sequence"] for one in self.entries if one["what"] == "commit" and one["table"] == table]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        given = self.headers[SIGNATURE]
        assert given == signature(SECRET, int(given.partition(",")[0].removeprefix("t=")), body)
        if self.server.status == 200:
            self.server.entries += json.loads(body)["entries"]
        else:
            self.server.refused += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_every_commit_is_told(database: Database, lake_folder: LakeFolder, hook: Hook) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items VALUES (1, 1)")
    told = {"webhook": f"http://127.0.0.1:{hook.server_address[1]}/", "secret": SECRET, "batch": "1s", "name": "hook"}
    config = lake_folder.config(group({None: database}, {"items": None}), {"enabled": False})
    config = config.model_copy(update={"notify": (WebhookConfig.model_validate(told),)})

    def run(pipeline: Pipeline) -> Webhooks:
        about, store = pipeline.app.lake.about, state_of(config)
        return Webhooks(lambda: config.notify, about, store.notices, str, lambda: pipeline.app.phase == "running")

    def change(key: int) -> None:
        database.execute("INSERT INTO items VALUES (%s, 0)", (key,))
        pipeline.wait_applied(database)

    def behind(sequences: list[int]) -> bool:
        return hook.sequences("shop.items") == sequences

    with Pipeline(config, lake_folder) as pipeline, run(pipeline).telling():
        pipeline.wait_streaming()
        change(2)
        wait_until(lambda: bool(hook.entries) and hook.entries[-1]["kind"] == "stream", lambda: str(hook.entries))
        assert (hook.entries[-1]["inserts"], [*hook.entries[-1]["positions"]]) == (1, ["shop"])
        first = hook.sequences("shop.items")
        hook.status = 503
        change(3)
        wait_until(lambda: hook.refused > 1, "the webhook is away")
    with Pipeline(config, lake_folder) as pipeline:  # nobody tells, as after a kill before anything is sent
        pipeline.wait_streaming()
        change(4)
    hook.status = 200
    with Pipeline(config, lake_folder) as pipeline, run(pipeline).telling():
        pipeline.wait_streaming()
        change(5)
        expected = [*first, *range(first[-1] + 1, first[-1] + 4)]
        wait_until(lambda: behind(expected), lambda: f"{expected}: {hook.entries}")
        assert not [one for one in hook.entries if "missed" in one]
