"""A database of holes that speaks like OSV's, on this machine, with the holes that a test tells it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HoleDatabase:
    """Answers queries of one package and version.

    Attributes:
        url: Where it answers.
        holes: (ecosystem, package, version) -> documents of OSV's schema.
        asked: The keys that were asked for.
        status: What it answers with.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.holes: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.status = 200

    def add(self, ecosystem: str, package: str, version: str, **document: Any) -> None:
        """Have it know one more hole."""
        affected = {"package": {"name": package, "ecosystem": ecosystem}, "ranges": document.pop("ranges", [])}
        self.holes.setdefault((ecosystem, package, version), []).append({"affected": [affected], **document})

    def answer(self, query: dict[str, Any]) -> dict[str, Any]:
        """Return what it answers: one hole a page."""
        key = query["package"]["ecosystem"], query["package"]["name"], query["version"]
        self.asked.append(key)
        page, found = int(query.get("page_token", 0)), self.holes.get(key, [])
        following = {"next_page_token": str(page + 1)} if page + 1 < len(found) and key[0] == "Maven" else {}
        shown = found[page : page + 1] if key[0] == "Maven" else found
        return {"vulns": shown, **following} if shown else {}


@contextlib.contextmanager
def hole_database() -> Iterator[HoleDatabase]:
    """Run a database."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(database.answer(query)).encode()
            self.send_response(database.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        database = HoleDatabase(f"http://127.0.0.1:{server.server_address[1]}/v1/query")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield database
        finally:
            server.shutdown()
            thread.join()


__all__ = ["HoleDatabase", "hole_database"]
