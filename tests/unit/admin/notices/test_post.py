"""Requests to a server of this machine, which answers as it is told to."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from kuvasz.admin.notices.post import NotTaken, post


class Server(http.server.ThreadingHTTPServer):
    """Answers with a status, and remembers what it was asked."""

    status = 204
    to = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, bytes, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.command, self.path, body, self.headers["X-Mine"]))
        self.send_response(self.server.status)
        if self.server.to:
            self.send_header("Location", self.server.to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_what_is_sent_arrives(server: Server) -> None:
    post(f"{server.url}/hook?a=b", b"{}", {"X-Mine": "yes"})
    assert server.asked == [("POST", "/hook?a=b", b"{}", "yes")]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(server: Server, status: int) -> None:
    server.status, server.to = status, f"{server.url}/elsewhere"
    with pytest.raises(NotTaken, match=rf"^it answers {status}$"):
        post(f"{server.url}/hook", b"{}", {"X-Mine": ""})
    assert [path for _, path, *_ in server.asked] == ["/hook"]


def test_an_error_is_told_without_the_url(server: Server) -> None:
    server.status = 500
    with pytest.raises(NotTaken, match=r"^it answers 500$"):
        post(f"{server.url}/geheim", b"{}", {"X-Mine": ""})
    for url in ("http://127.0.0.1:1/geheim", "http://geheim.invalid/x", "http://[geheim/x"):
        with pytest.raises(NotTaken) as caught:
            post(url, b"{}", {})
        assert "geheim" not in str(caught.value)
        assert str(caught.value)
