"""The health check of the image, as a program that asks a server."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import certificates

ROOT = Path(__file__).parents[3]
CHECK = ROOT / "deploy" / "healthcheck.py"


class Answer(BaseHTTPRequestHandler):
    """Says whether it lives, and nothing else."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """A server on a port of its own, with TLS if that is asked for; its port."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), type("Told", (Answer,), {"status": request.param[1]}))
    if request.param[0] == "https":
        certificate = certificates.made(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        made.socket = context.wrap_socket(made.socket, server_side=True)
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made.server_port
    made.shutdown()
    thread.join()
    made.server_close()


def checked(port: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUVASZ_SERVER__ADDRESS": f"0.0.0.0:{port}"}
    return subprocess.run(
        [sys.executable, CHECK], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("server", "code"),
    [(("http", 200), 0), (("https", 200), 0), (("http", 503), 1), (("https", 503), 1)],
    indirect=["server"],
)
def test_who_lives_is_healthy_with_tls_and_without(server: int, code: int) -> None:
    done = checked(server)
    assert done.returncode == code, done.stderr
    assert ("503" in done.stderr) == bool(code)


def test_where_nobody_listens_it_says_so() -> None:
    done = checked(1)
    assert done.returncode == 1
    assert "http://127.0.0.1:1/livez: " in done.stderr


def test_the_image_and_the_compose_file_have_it() -> None:
    command = "/usr/local/share/kuvasz/healthcheck.py"
    image = (ROOT / "Dockerfile").read_text("utf-8")
    assert f"COPY deploy/healthcheck.py {Path(command).parent}/" in image
    assert f'CMD ["python", "{command}"]' in image
    assert f"test: [CMD, python, {command}]" in (ROOT / "deploy" / "compose.yaml").read_text("utf-8")
