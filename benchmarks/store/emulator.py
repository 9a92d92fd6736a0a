"""moto's S3 server behind the proxy, as two processes of this machine; a context manager."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.store.requests import parse

if TYPE_CHECKING:
    from benchmarks.store.requests import Request

BUCKET = "lake"

#: moto looks whether a request is signed, and not by whom.
_SIGNED = "AWS4-HMAC-SHA256 Credential=kuvasz/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"

#: Seconds in which the two must listen.
_PATIENCE_S = 60.0


class ObjectStore:
    """An object store whose every request takes a while and is noted.

    Args:
        folder: For its log and the notes.
        delay_ms: What a request takes.
    """

    def __init__(self, folder: Path, delay_ms: float) -> None:
        server, proxy = _free_port(), _free_port()
        self._direct, self._behind = (f"http://127.0.0.1:{port}" for port in (server, proxy))
        self._notes = folder / "requests.jsonl"
        self._log = (folder / "store.log").open("ab")
        commands = (
            ("moto.server", "-H", "127.0.0.1", "-p", str(server)),
            ("benchmarks.store.proxy", str(proxy), str(server), str(delay_ms), str(self._notes)),
        )
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", *command], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
            )
            for command in commands
        ]
        for port in (server, proxy):
            self._wait(port)
        self._ask("PUT", BUCKET)

    @property
    def lake(self) -> dict[str, Any]:
        """Options of the map's section `lake`."""
        return {"warehouse": f"s3://{BUCKET}/warehouse", "properties": self._properties(self._behind)}

    @property
    def pyiceberg(self) -> dict[str, str]:
        """Properties for reading beside the proxy: not slowed, not noted."""
        return self._properties(self._direct)

    def read(self, location: str) -> bytes:
        """Return an object beside the proxy.

        Raises:
            FileNotFoundError: It is not there.
        """
        try:
            return self._ask("GET", location.partition("://")[2])
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                raise FileNotFoundError(location) from error
            raise

    def requests(self, begin: float, end: float) -> list[Request]:
        """Return the requests that were answered between two moments, in order."""
        lines = self._notes.read_text().splitlines()
        return [request for request in map(parse, lines) if begin <= request.until <= end]

    def cpu_s(self) -> float:
        """Return the CPU seconds of emulator and proxy so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self._processes]
        return sum(one.user + one.system for one in times)

    def close(self) -> None:
        """End both."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._log.close()

    @staticmethod
    def _properties(endpoint: str) -> dict[str, str]:
        return {
            "s3.endpoint": endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": "kuvasz",
            "s3.secret-access-key": "kuvasz-secret",
            "client.region": "us-east-1",
        }

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(f"{self._direct}/{path}", method=method, headers={"Authorization": _SIGNED})  # noqa: S310 (our own server)
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
            return bytes(answer.read())

    def _wait(self, port: int) -> None:
        end_at = time.monotonic() + _PATIENCE_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if time.monotonic() > end_at or any(process.poll() is not None for process in self._processes):
                raise RuntimeError(f"the store does not listen: {Path(str(self._log.name)).read_text()[-2000:]}")
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
