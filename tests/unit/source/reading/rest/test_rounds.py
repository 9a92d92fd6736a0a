"""The looks at many sources, over real sockets, a libpq of our own, and readers that note what they are told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from kuvasz.model import Delivery, PgType, Relation
from kuvasz.route.assembler import Assembler
from kuvasz.source.drain import together
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.rest.rounds import Rounds
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from tests.support import pgoutput
from tests.support.libpq import Library
from tests.support.pgoutput import begin, commit, keepalive, relation, row

OPTIONS = ReaderOptions(rest_s=0.02)


def types(oids: list[int]) -> dict[int, PgType]:
    return {oid: PgType(oid=oid, name="text") for oid in oids}


class Routed:
    def worker(self, source: str, relation: Relation) -> int | None:
        del source
        return relation.oid - 1


class Source:
    """A source and its seat: what is sent goes to libpq, and a byte to the socket, which says that it is there."""

    def __init__(self, name: str, library: Library, progress: Progress) -> None:
        self.source, self.progress = name, progress
        self._library = library
        self.ours, self.theirs = socket.socketpair()
        self.fileno = self.ours.fileno()
        self.drain, self._arrived = library.connect()
        self.assembler = Assembler(name, Routed(), types, 1)
        self.called = asyncio.Event()
        self.handed: list[list[bytes]] = []
        self.errors: list[Exception] = []
        self.replies = 0
        self.breaks = False
        for _, one in self.assembler.feed(*pgoutput.gulp([begin(8), relation(1), row(1, "a"), commit(8)])):
            progress.routed(name, 0, one.through)
            progress.durable(name, 0, one.through, 0)
        progress.received(name, self.assembler.received_lsn)

    def send(self, *messages: bytes) -> None:
        self._arrived += messages
        self.theirs.send(b".")

    def take(self, found: Any, size: int, now: float) -> Sequence[tuple[int, Delivery]] | None:
        with contextlib.suppress(BlockingIOError):
            self.ours.recv(1 << 10, socket.MSG_DONTWAIT)
        if self.breaks:
            self.assembler.take(found)  # and what it delivers is nowhere
            self.fail(ValueError("it is broken"))
            return ()
        return self.assembler.take(found)

    def hand_over(self, payloads: Any, lengths: Any, pending: Any) -> None:
        self.drain.hold(payloads, lengths, pending)
        self.wake()

    def held(self) -> bytes:
        self.drain.drain(1 << 20)
        return self.drain.gulp()[0].tobytes()

    def wake(self) -> None:
        self.called.set()

    def fail(self, error: Exception) -> None:
        self.errors.append(error)
        self.called.set()

    @property
    def is_called(self) -> bool:
        return self.called.is_set()

    @property
    def received_lsn(self) -> int:
        return self.assembler.received_lsn

    def reply(self) -> bool:
        is_asked = self.assembler.take_reply_wanted()
        self.replies += is_asked
        return is_asked


class World:
    def __init__(self, library: Library) -> None:
        self.progress, self.budget = Progress(), Budget(1 << 20)
        self.came: list[list[Delivery]] = []
        inbox: Any = type("Inbox", (), {"put": lambda _, *some: self.came.append(list(some))})()
        self.rounds = Rounds(self.progress, self.budget, [inbox, inbox])
        self.sources = [Source(f"s{number}", library, self.progress) for number in range(3)]

    @contextlib.asynccontextmanager
    async def attended(self) -> AsyncIterator[list[Source]]:
        with contextlib.ExitStack() as stack:
            for one in self.sources:
                stack.enter_context(self.rounds.attended(one, OPTIONS))
            yield self.sources


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 (it is told nothing)
            await asyncio.sleep(0.005)


def change(lsn: int, text: str = "b", oid: int = 1) -> list[bytes]:
    return [begin(lsn), row(oid, text), commit(lsn)]


def test_what_many_bring_is_registered_delivered_and_known_as_heard(library: Library) -> None:
    async def run() -> None:
        world = World(library)
        async with world.attended() as (changed, hinted, silent):
            changed.send(*change(100))
            hinted.send(keepalive(200))
            await until(lambda: world.came and world.progress.received_lsn("s1") == 200)
            ((delivery,),) = world.came
            assert (delivery.source, delivery.through, world.budget.bytes) == ("s0", 108, delivery.bytes)
            assert world.progress.confirmable("s0") == 16, "it is not durable yet"
            assert (world.progress.confirmable("s1"), world.progress.confirmable("s2")) == (200, 16)
            world.progress.durable("s0", 0, 108, 0)
            assert world.progress.confirmable("s0") == 108
            changed.send(*change(300), *change(400))
            await until(lambda: len(world.came) == 2)
            assert world.progress.received_lsn("s0") == 408
            assert not any(one.is_called for one in (changed, hinted, silent))

    asyncio.run(run())


def test_what_comes_to_all_at_once_is_put_at_once(library: Library) -> None:
    async def run() -> None:
        world = World(library)
        async with world.attended() as sources:
            for one in sources:
                one.send(*change(100))
            await until(lambda: world.came)
            assert [one.source for one in world.came[0]] == ["s0", "s1", "s2"]

    asyncio.run(run())


@pytest.mark.parametrize("stream", [
    [begin(100), row(1, "b")], change(100, oid=2), [relation(3)], change(100, "v" * (2 * together.MOST_BYTES)),
    change(100, "v" * together.MOST_BYTES) + change(200),
])  # fmt: skip
def test_what_is_no_small_gulp_goes_to_its_reader_whole(library: Library, stream: list[bytes]) -> None:
    async def run() -> None:
        world = World(library)
        async with world.attended() as (first, other, third):
            first.send(*stream)
            other.send(*change(100))
            third.send(keepalive(200))
            await until(lambda: first.is_called and world.came and third.received_lsn == 200)
            assert [[one.source for one in some] for some in world.came] == [["s1"]]
            assert first.held() == b"".join(stream)
            assert first.received_lsn == 16
            first.send(keepalive(900))
            await asyncio.sleep(0.1)
            assert first.received_lsn == 16, "its reader looks by itself from then on"

    asyncio.run(run())


def test_a_connection_that_ends_goes_to_its_reader_and_no_other(library: Library) -> None:
    async def run() -> None:
        world = World(library)
        async with world.attended() as (ended, other, _):
            library.end(ended.drain)
            ended.send(keepalive(200))
            other.send(keepalive(200))
            await until(lambda: ended.is_called and other.received_lsn == 200)
            assert not other.is_called

    asyncio.run(run())


def test_a_source_that_fails_fails_alone(library: Library) -> None:
    async def run() -> None:
        world = World(library)
        async with world.attended() as (broken, other, _):
            broken.breaks = True
            before = world.progress.received_lsn("s0")
            broken.send(*change(100))
            other.send(*change(100))
            await until(lambda: world.came and broken.errors)
            assert [one.source for one in world.came[0]] == ["s1"]
            assert broken.received_lsn > before == world.progress.received_lsn("s0"), "it is read again from there on"
            assert not other.is_called

    asyncio.run(run())


def test_what_was_taken_and_goes_nowhere_has_all_of_them_begin_again(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        world = World(library)
        async with world.attended() as (first, second, third):
            monkeypatch.setattr(world.progress, "heard", lambda *_: 1 / 0)
            first.send(*change(100))
            second.send(keepalive(100))
            await until(lambda: first.errors and second.errors)
            assert not third.errors
            assert not world.came
            monkeypatch.undo()
            third.send(keepalive(500))
            await until(lambda: world.progress.received_lsn("s2") == 500)

    asyncio.run(run())


def test_a_source_that_has_its_share_of_the_budget_is_not_read(library: Library) -> None:
    async def run() -> None:
        world = World(library)
        world.budget.add("s0", 1 << 20)
        async with world.attended() as (full, other, _):
            full.send(*change(100))
            other.send(*change(100))
            await until(lambda: world.came and full.is_called)
            assert [one.source for one in world.came[0]] == ["s1"]
            assert full.held() == b"".join(change(100))

    asyncio.run(run())


def test_a_server_that_asks_is_answered_and_soon_looked_at_again(library: Library) -> None:
    """One that shuts down asks again at once, and is not to wait for the beat of a thousand sources each time."""

    async def run() -> None:
        world = World(library)
        with world.rounds.attended(world.sources[0], ReaderOptions(rest_s=0.2)):
            asked = world.sources[0]
            asked.send(keepalive(100, reply=True))
            await until(lambda: asked.replies == 1)
            began = asyncio.get_running_loop().time()
            asked.send(keepalive(100, reply=True))
            await until(lambda: asked.replies == 2)
            assert asyncio.get_running_loop().time() - began < 0.15

    asyncio.run(run())


def test_a_fleet_at_rest_is_not_looked_at_and_heard_at_once(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        world, looks = World(library), list[int]()
        look_on = Rounds._look_on
        monkeypatch.setattr(Rounds, "_look_on", lambda one, ready: (looks.append(len(ready)), look_on(one, ready)))
        async with world.attended() as (first, _, _):
            await asyncio.sleep(0.5)
            assert len(looks) < 10
            seen = len(looks)
            await asyncio.sleep(0.2)
            assert len(looks) == seen
            for at in (100, 200):
                first.send(keepalive(at))
                await until(lambda at=at: first.received_lsn == at)
        assert sum(looks) == 2

    asyncio.run(run())


def test_who_left_is_not_looked_at(library: Library) -> None:
    async def run() -> None:
        world = World(library)
        async with world.attended() as sources:
            left = sources[0]
        left.send(keepalive(100))
        async with world.attended() as sources:
            await until(lambda: left.received_lsn == 100)
        with world.rounds.attended(sources[1], OPTIONS):
            left.send(keepalive(200))
            sources[1].send(keepalive(200))
            await until(lambda: sources[1].received_lsn == 200)
            assert left.received_lsn == 100

    asyncio.run(run())
