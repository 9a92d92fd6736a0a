"""A server, what outlives a process, and processes with a staged log, all in memory and without threads.

Each step is one that a test takes: who fails, and what happens meanwhile, is up to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import KuvaszError, SlotLost, StateError, StateTaken
from kuvasz.source.reading.staged_stream import StagedStream
from kuvasz.staging import slice_format
from kuvasz.staging.cutter import Cutter
from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.stream_messages import StreamMessages
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.ports import LogLease
from tests.support import pgoutput
from tests.support.memory_store import MemoryStore

WRITES = frozenset(
    {
        "append",
        "begin_anew",
        "set_back",
        "abandon_open",
        "applied",
        "forget",
        "give",
        "withdraw",
        "answer",
        "hold",
        "release",
        "rejoin",
    }
)

#: Small, so that transactions go on in parts, and memory keeps a few stretches alone.
PART_BYTES = 150
KEEP_BYTES = 3500
OBJECT_BYTES = 4000


@dataclasses.dataclass(frozen=True)
class Transaction:
    """A transaction: rows of relations, each as it was described then."""

    lsn: int
    end: int
    rows: tuple[tuple[int, int, str], ...]  #: OID, version of the relation, and the row's text


class Server:
    """A source: its WAL, its slot, and the connection that there is."""

    def __init__(self) -> None:
        self.wal: list[Transaction] = []
        self.end = 100
        self.confirmed = 100
        self.versions: dict[int, int] = {1: 0, 2: 0}
        self._number = itertools.count()

    def commit(self, oids: list[int], size: int) -> None:
        rows = tuple((oid, self.versions[oid], f"{next(self._number)}-" + "x" * size) for oid in oids)
        lsn = self.end + 10
        self.wal.append(Transaction(lsn, lsn + 8, rows))
        self.end = lsn + 8

    def fail_over(self, end: int) -> None:
        """Have another server go on behind an LSN."""
        self.wal = [one for one in self.wal if one.end <= end]
        self.end = end
        self.confirmed = min(self.confirmed, end)

    def stream(self) -> Iterator[bytes]:
        """What a connection that begins now brings, as long as it goes on; an empty message: there is no more now."""
        described: dict[int, int] = {}
        at = self.confirmed
        while True:
            found = next((one for one in self.wal if one.end > at), None)
            if found is None:
                yield b""
                continue
            yield pgoutput.begin(found.lsn, found.lsn)
            for number, (oid, version, text) in enumerate(found.rows):
                if described.get(oid) != version:
                    described[oid] = version
                    yield pgoutput.relation(oid, f"v{version}")
                if number % 5 == 4:
                    yield pgoutput.keepalive(found.lsn)  # as a server that decodes for long
                yield pgoutput.row(oid, text)
            yield pgoutput.commit(found.lsn, found.end)
            at = found.end


class Heard:
    """What one connection of a reader was told, checked as it comes."""

    def __init__(self, from_lsn: int) -> None:
        self.from_lsn = from_lsn
        self.whole: list[Transaction] = []
        self.lsn = from_lsn  #: up to which it was heard out
        self._described: dict[int, int] = {}
        self._open: tuple[int, list[tuple[int, int, str]]] | None = None

    def take(self, data: bytes, lengths: Any) -> None:
        ends = [0, *lengths.cumsum().tolist()]
        for begin, end in itertools.pairwise(ends):
            self._message(data[begin:end])

    def _message(self, payload: bytes) -> None:
        if payload[:1] == b"k":
            if self._open is None:
                self.lsn = max(self.lsn, int.from_bytes(payload[1:9], "big"))
            return
        body = payload[25:]
        tag, number = body[:1], int.from_bytes(body[1:5], "big")
        if tag == b"B":
            assert self._open is None, "a transaction begins within another one"
            self._open = int.from_bytes(body[1:9], "big"), []
            return
        assert self._open is not None, "it is not within a transaction"
        lsn, rows = self._open
        if tag == b"R":
            name = body[5:].split(b"\0")[1]
            self._described[number] = int(name[1:])
        elif tag == b"I":
            rows.append((number, self._described[number], body[13:].decode()))
        else:
            end = int.from_bytes(body[10:18], "big")
            assert int.from_bytes(body[2:10], "big") == lsn
            self.whole.append(Transaction(lsn, end, tuple(rows)))
            self.lsn, self._open = max(self.lsn, end), None


class LeasedIndex:
    """The index as one process sees it: it is refused once another one has the lease of its role.

    Of those that read, once it was late and another one has taken what it held.
    """

    def __init__(self, index: MemoryIndex, role: ClusterRole, node: str = "memory") -> None:
        self._index = index
        self._node = node
        self._key = f"{role}/{node}"
        self._holders: dict[str, int] = index.__dict__.setdefault("holders", {})
        self.number = 0
        self.lost_answers = 0  #: how many of the next writes are done, and say nothing

    def open(self) -> LogLease:
        lease = self._index.open()
        self.number = self._holders[self._key] = lease.number
        if self._key.startswith("read/"):
            self._index.nodes[self._node] = False
        self._index._holders = {source: node for source, node in self._index._holders.items() if node != self._node}
        return lease._replace(others=frozenset(self._holders.values()) - {lease.number})

    def be_late(self) -> None:
        """Not be heard of for a lease."""
        self._index.nodes.pop(self._node, None)

    def be_heard_of(self) -> None:
        """Renew the lease, if nobody else has ended it meanwhile."""
        if self._holders.get(self._key) == self.number:
            self._index.nodes.setdefault(self._node, False)

    def _end_late(self) -> None:
        for key in [key for key in self._holders if key.startswith("read/") and key[5:] not in self._index.nodes]:
            del self._holders[key]

    def __getattr__(self, name: str) -> Any:
        self._index.node = self._node
        found = getattr(self._index, name)
        if name not in WRITES:
            return found

        def write(*arguments: Any, **named: Any) -> Any:
            if name == "hold":
                if self._node not in self._index.nodes:
                    return []
                self._end_late()
            if self._holders.get(self._key) != self.number:
                raise StateTaken("another process replicates by now")
            answer = found(*arguments, **named)
            if self.lost_answers:
                self.lost_answers -= 1
                raise StateError("no answer")
            return answer

        return write


class FailingStore(MemoryStore):
    """A store of which the next writes fail, before or behind what they do."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects = objects
        self.failures: list[str] = []
        self.keeps = 0  #: how many of the next removals do nothing

    def put(self, name: str, *pieces: bytes) -> None:
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "nothing":
            raise OSError("the store is away")
        super().put(name, *pieces)
        if failure:
            raise OSError("no answer")

    def remove(self, names: Any) -> list[str]:
        if self.keeps:
            self.keeps -= 1
            return []
        return super().remove(names)


class _Stop:
    """Stands for the event that ends a writer: between two attempts something else happens, or the process ends."""

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], None]] = []
        self.is_over = False

    def is_set(self) -> bool:
        return self.is_over

    def set(self) -> None:
        self.is_over = True

    def wait(self, timeout: float) -> bool:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return self.is_over


class _Thread:
    def start(self) -> None: ...

    def is_alive(self) -> bool:
        return False


class Process:
    """A process: its log, and of each source its connection and whoever hears it. It is what `Staging` is."""

    def __init__(
        self,
        index: MemoryIndex,
        objects: dict[str, bytes],
        role: ClusterRole = ClusterRole.ALL,
        node: str = "memory",
        *,
        is_shared: bool = False,
    ) -> None:
        self.index, self.store, self.stop = LeasedIndex(index, role, node), FailingStore(objects), _Stop()
        made: Any = self.index
        self.log = StagedLog(
            made, self.store, interval_s=0, object_bytes=OBJECT_BYTES, sources=1, role=role, is_shared=is_shared
        )  # fmt: skip
        if role is ClusterRole.ALL:
            self.log._keep_bytes = KEEP_BYTES
        writer: Any = self.log.writer
        writer._thread, writer._stop = _Thread(), self.stop
        self.log.open()

    def stage(self) -> None:
        with contextlib.suppress(StateTaken):
            writer: Any = self.log.writer
            writer._step()

    def shorten(self) -> None:
        self.log.writer._shorten()


class Received:
    """One source in a process: what receives it, and whoever hears it."""

    def __init__(self, process: Process, name: str, server: Server) -> None:
        self.process, self.log, self.name, self.server = process, process.log, name, server
        if self.log.source(name).position is None and process.log._role is not ClusterRole.READ:
            self.log.begin_anew(name, server.confirmed)
        self.source = self.log.source(name)
        self.is_receiving, self.error = asyncio.Event(), None
        self._stream: Iterator[bytes] | None = None
        self._cutter: Cutter | None = None
        self.hearing: StagedStream | None = None
        self.heard: Heard | None = None

    # What a stream asks of it

    def go_on(self) -> None: ...

    def ask(self) -> None: ...

    # Steps

    def connect(self, *, has_failed_over: bool = False) -> bool:
        self._stream = self._cutter = None
        self.is_receiving.clear()
        try:
            self.log.abandon_open(self.name)
            if has_failed_over:
                self.log.set_back(self.name, self.server.confirmed)
        except KuvaszError:
            return False
        self._stream, self._cutter = self.server.stream(), Cutter(*self.source.newest, PART_BYTES)
        self.is_receiving.set()
        return True

    def receive(self, messages: int, *, keepalive: bool = False) -> bool:
        """Take so many messages of the connection, as one gulp; return whether there were any."""
        if self._stream is None or self._cutter is None:
            return False
        found = [one for one in itertools.islice(self._stream, messages) if one]
        if keepalive and len(found) < messages:
            self.server.end += 3
            found.append(pgoutput.keepalive(self.server.end, reply=True))
        if found:
            self.source.add(self._cutter.feed(StreamMessages(*pgoutput.gulp(found))))
        return bool(found)

    def confirm(self) -> None:
        if self._stream is not None:
            self.server.confirmed = max(self.server.confirmed, self.source.known.lsn)

    async def hear(self, steps: int) -> bool:
        """Hear so many gulps at most, on a connection that is there or a new one; return whether anything came."""
        if self.hearing is None:
            if not self.is_receiving.is_set():
                return False
            staging: Any = self
            self.hearing = await StagedStream.open(staging)
            self.heard = Heard(self.hearing._from_lsn)
        assert self.heard is not None
        came = False
        for _ in range(steps):
            try:
                added = self.hearing.drain(300)
            except KuvaszError as error:
                if isinstance(error, SlotLost):
                    raise
                self.fall_silent()
                return True
            if added:
                came = True
                self.heard.take(*self.hearing.gulp())
                self.hearing.clear()
            await asyncio.sleep(0)
        return came or self.hearing._fetching is not None

    def fall_silent(self) -> None:
        if self.hearing is not None:
            self.hearing.close()
        self.hearing = self.heard = None

    def tell(self, flushed: int) -> None:
        if self.hearing is not None:
            self.hearing.send_status(written=flushed, flushed=flushed)


def staged(index: MemoryIndex, objects: dict[str, bytes], name: str) -> set[int]:
    """Return the end LSNs of the transactions that are staged of a source as a whole, as the log says."""
    found: set[int] = set()
    is_within = False
    for one in index.slices(name, 0, through=0, most=10_000):
        held = slice_format.decode(objects[one.object][one.at : one.at + one.size], name, one.first, one.last)
        messages = StreamMessages(held.data, held.lengths)
        marks = sorted(
            [(at, True) for at in messages.begins.tolist()] + [(at, False) for at in messages.commits.tolist()]
        )
        for _, is_begin in marks:
            assert is_within != is_begin, "a transaction is staged in part"
            is_within = is_begin
        assert is_within == one.is_open
        found |= set(messages.end_lsns(messages.commits).tolist())
    return found


@contextlib.contextmanager
def without_threads() -> Iterator[None]:
    """What would run in threads of a loop runs on it, one step later."""

    async def soon(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        found = function(*arguments)
        await asyncio.sleep(0)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", soon)
        patch.setattr("kuvasz.source.reading.staged_stream._WAIT_S", 0)
        yield


__all__ = [
    "Process", "Received", "Server", "staged", "without_threads",
]  # fmt: skip
