"""A proxy before an HTTP server: each answer comes a set time after its request, and each request is noted.

    python -m benchmarks.store.proxy <port> <port of the server> <milliseconds> <file for the notes>

The server's own time is within that time, unless it takes longer. Connections to the proxy are kept, as a store keeps
them; the server gets a new one for each request.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import sys
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECTIONS = itertools.count()

#: Header lines that are between two neighbours only.
_OF_THE_HOP = frozenset({"connection", "transfer-encoding", "expect", "content-length", "keep-alive"})

#: Bytes of one header line at most.
_LIMIT = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request or an answer."""

    first: str  #: its first line
    headers: Mapping[str, str]  #: by name in lower case
    body: bytes

    def render(self, *further: str) -> bytes:
        """Return its bytes, with further header lines."""
        kept = [f"{name}: {value}" for name, value in self.headers.items() if name not in _OF_THE_HOP]
        return "\r\n".join([self.first, *kept, *further, "", ""]).encode("latin-1")


class Proxy:
    """Answers for a server.

    Args:
        server: The server's port.
        delay_s: From a request's last byte to the answer's first.
        notes: Gets a line of JSON for each request.
    """

    def __init__(self, server: int, delay_s: float, notes: IO[str]) -> None:
        self._server = server
        self._delay_s = delay_s
        self._notes = notes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        connection = next(_CONNECTIONS)
        try:
            while (request := await _read_request(reader, writer)) is not None:
                await self._answer(request, writer, connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    async def _answer(self, request: Message, writer: asyncio.StreamWriter, connection: int) -> None:
        at, due = time.time(), time.monotonic() + self._delay_s
        answer = await self._ask(request)
        await asyncio.sleep(due - time.monotonic())
        method, target, _ = request.first.split(" ", 2)
        length = answer.headers.get("content-length", "0") if method == "HEAD" else str(len(answer.body))
        writer.write(answer.render(f"content-length: {length}") + answer.body)
        await writer.drain()
        note = {
            "at": at, "until": time.time(), "method": method, "target": target,
            "status": int(answer.first.split(" ", 2)[1]), "sent": len(request.body), "received": len(answer.body),
            "connection": connection,
        }  # fmt: skip
        self._notes.write(json.dumps(note) + "\n")

    async def _ask(self, request: Message) -> Message:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server, limit=_LIMIT)
        try:
            writer.write(request.render(f"content-length: {len(request.body)}", "connection: close") + request.body)
            await writer.drain()
            first, headers = await _read_head(reader)
            body = await reader.read() if request.first.startswith("HEAD ") else await _read_rest(reader, headers)
            return Message(first=first, headers=headers, body=body)
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
    """Return the next request of a connection; None if there is none any more."""
    first, headers = await _read_head(reader)
    if not first:
        return None
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Message(first=first, headers=headers, body=body)


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    lines: list[str] = []
    while (line := (await reader.readline()).decode("latin-1").rstrip("\r\n")) or not lines:
        lines.append(line)
        if not line:
            break
    pairs = [line.partition(":") for line in lines[1:]]
    return lines[0], {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_rest(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """Return the body of an answer behind which the connection ends."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    length = headers.get("content-length")
    return await (reader.read() if length is None else reader.readexactly(int(length)))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return b"".join(parts)


async def _main(port: int, server: int, delay_s: float, file: str) -> None:
    with open(file, "a", buffering=1) as notes:  # noqa: ASYNC230, PTH123 (before anything is served)
        proxy = Proxy(server, delay_s, notes)
        listening = await asyncio.start_server(proxy.serve, "127.0.0.1", port, limit=_LIMIT, backlog=500)
        await listening.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000, sys.argv[4]))
