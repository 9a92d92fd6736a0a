"""One reader that connects, fails, waits and connects again; its connection does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kuvasz.errors import SlotLost, SourceError, SourceRefused
from kuvasz.model import Delivery
from kuvasz.source.reading import reader as reader_module
from kuvasz.source.reading.ends import Downstream, Upstream
from kuvasz.source.reading.facts import ReaderState
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.reader import Reader
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from tests.support import pgoutput
from tests.support.pgoutput import begin, commit, keepalive, relation, row

OPTIONS = ReaderOptions(first_backoff_s=0.001, last_backoff_s=0.002, gulp_s=0.0, longest_gulp_s=0.0,
                        longest_pause_s=0.0)  # fmt: skip


class Connection:
    """Sends gulps, then fails as told or waits."""

    def __init__(self, world: World, gulps: list[list[bytes]], ending: Exception | None) -> None:
        self._world, self._gulps, self._ending = world, gulps, ending
        self._held: list[bytes] = []
        self.is_local, self.fileno = True, 0
        self.done: list[str] = []

    @property
    def gathered_bytes(self) -> int:
        return sum(map(len, self._held))

    async def identify_system(self) -> Any:
        return SimpleNamespace(system_id="7", timeline=1, flush_lsn=1, database="shop")

    async def wal_sender_timeout_s(self) -> float:
        return 60.0

    async def start_replication(self, *names: str, options: Mapping[str, str]) -> None:
        self.done.append(" ".join(["start", *names, *options.values()]))

    def drain(self, limit: int) -> int:
        if self._gulps:
            fresh = self._gulps.pop(0)
            self._held += fresh
            return sum(map(len, fresh))
        if self._ending is not None:
            raise self._ending
        self._world.is_idle.set()
        return 0

    def gulp(self) -> Any:
        data, lengths = pgoutput.gulp(self._held)
        return np.frombuffer(data, np.uint8), lengths

    def clear(self) -> None:
        self._held = []

    def send_status(self, *, written: int, flushed: int, is_reply_wanted: bool = False) -> None:
        self.done.append(f"status {flushed}")

    async def finish(self, timeout_s: float = 2.0) -> None:
        self.done.append("finished")

    def close(self) -> None:
        self.done.append("closed")


class World:
    """A reader and all around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan: list[Any] = []
        self.connections: list[Connection] = []
        self.took: list[Delivery] = []
        self.budget = Budget(1 << 20)
        self.progress = Progress()
        self.types = lambda _: {}
        self.reached: list[Any] = []  #: where the source is at each connection
        self.at: list[str] = []  #: where connections went
        monkeypatch.setattr(reader_module.Connection, "open", self._open)
        monkeypatch.setattr(Reader, "_readable", self._readable)

    def conninfo(self) -> str:
        found = self.reached.pop(0) if self.reached else "host=x"
        if isinstance(found, Exception):
            raise found
        return str(found)

    async def _open(self, conninfo: str, source: str) -> Connection:
        assert source == "eu"
        self.at.append(conninfo)
        ending = self.plan.pop(0) if self.plan else ([], None)
        if isinstance(ending, Exception):
            raise ending
        self.connections.append(Connection(self, *ending))
        return self.connections[-1]

    async def _readable(self, _: Connection) -> None:
        await asyncio.sleep(0.001)

    def live(self, then: Callable[[Reader], Any] | None = None) -> Reader:
        """Read until a stream is idle, do something, and stop; or until it ends by itself."""

        async def run() -> Reader:
            self.is_idle = asyncio.Event()
            inbox: Any = SimpleNamespace(put=self.took.append)
            routes: Any = SimpleNamespace(worker=lambda *_: 0)
            down = Downstream(routes=routes, inboxes=[inbox], progress=self.progress, budget=self.budget)
            up = Upstream(source="eu", conninfo=self.conninfo, slot="s", publications=["p", "q"], system_id="7")
            made = Reader(up, down, self.types, options=OPTIONS)
            running = asyncio.ensure_future(made.run())
            async with asyncio.timeout(30):
                waiting = asyncio.ensure_future(self.is_idle.wait())
                await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if then is not None and not running.done():
                    outcome = then(made)
                    if asyncio.iscoroutine(outcome):
                        await outcome
                made.stop()
                await running
            return made

        return asyncio.run(run())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_each_connection_goes_where_the_map_says_by_then(world: World) -> None:
    """A url, or a part of it, may be in a file, which says another server when this one is gone for good."""
    world.plan = [SourceError("it is away"), ([[keepalive(200)]], None)]
    world.reached = ["host=y", SourceError("the file cannot be read"), "host=z"]
    assert world.live().received_lsn == 200
    assert world.at == ["host=y", "host=z"]


STREAM = [[begin(100), relation(1), row(1, "a"), commit(100, 148)], [keepalive(200)]]


def test_what_comes_is_registered_and_handed_to_its_worker(world: World) -> None:
    world.plan = [(list(STREAM), None)]
    seen: list[Any] = []
    reader = world.live(lambda one: seen.append((one.facts.state, one.rows, one.received_lsn)))
    assert seen == [(ReaderState.STREAMING, 1, 200)]
    (delivery,) = world.took
    assert (delivery.source, delivery.through, delivery.epoch) == ("eu", 148, 1)
    assert world.budget.bytes == delivery.bytes
    assert world.progress.routed_lsn("eu") == 148
    assert reader.facts.state is ReaderState.STOPPED
    assert world.connections[0].done[0] == "start s p q"


def test_it_leaves_with_a_last_word(world: World) -> None:
    world.plan = [([], None)]
    world.live()
    done = world.connections[0].done
    assert done[-2:] == ["finished", "closed"]
    assert done[-3].startswith("status ")


def test_what_passes_is_tried_again_by_another_connection(world: World) -> None:
    world.plan = [SourceError("no route"), ([], SourceError("reset by peer")), (list(STREAM), None)]
    reader = world.live()
    assert reader.epoch == 3
    assert world.connections[0].done[-1] == "closed"
    assert len(world.took) == 1


def test_the_same_is_sent_again_behind_a_failure_with_the_next_epoch(world: World) -> None:
    world.plan = [(list(STREAM), SourceError("reset by peer")), (list(STREAM), None)]
    world.live()
    assert [one.epoch for one in world.took] == [1, 2]


@pytest.mark.parametrize("error", [SourceRefused("no privilege"), SlotLost("the slot is gone")])
def test_what_a_person_must_mend_ends_it(world: World, error: SourceError) -> None:
    world.plan = [([], error)]
    with pytest.raises(type(error)):
        world.live()


def test_another_cluster_ends_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def other(_: Connection) -> Any:
        return SimpleNamespace(system_id="8", timeline=1, flush_lsn=1, database="shop")

    monkeypatch.setattr(Connection, "identify_system", other)
    world.plan = [([], None)]
    with pytest.raises(SlotLost, match="cluster 8 answers, not 7"):
        world.live()
    assert world.connections[0].done == ["closed"], "nothing was read"


def test_to_go_back_is_to_begin_anew(world: World) -> None:
    world.plan = [([], None), ([], None)]

    async def back(reader: Reader) -> None:
        reader.rewind()
        while reader.epoch < 2 or reader.facts.state is not ReaderState.STREAMING:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.001)

    assert world.live(back).epoch == 2
    assert "finished" in world.connections[0].done


def test_a_reader_that_is_quiesced_reads_nothing_and_goes_on_confirming(world: World) -> None:
    world.plan = [([], None)]

    async def quiesce(reader: Reader) -> None:
        reader.quiesce()
        while not reader.facts.is_paused:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.001)
        world.connections[0]._gulps = list(STREAM)
        await asyncio.sleep(0.01)

    world.live(quiesce)
    assert world.took == []
    assert world.connections[0].done[-1] == "closed"


def test_a_budget_that_is_full_keeps_it_from_reading_until_there_is_room(world: World) -> None:
    world.plan = [([], None)]

    async def fill(reader: Reader) -> None:
        world.budget.add("eu", 2 << 20)
        while not reader.facts.is_paused:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.001)
        world.connections[0]._gulps = list(STREAM)
        assert world.took == []
        world.budget.remove({"eu": 2 << 20})
        while not world.took:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.001)

    world.live(fill)
    assert len(world.took) == 1


def test_a_budget_that_others_have_filled_lets_it_read_its_share(world: World) -> None:
    world.plan = [([], None)]

    async def fill(reader: Reader) -> None:
        world.budget.add("us", 2 << 20)
        world.connections[0]._gulps = list(STREAM)
        while not world.took:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.001)
        assert not reader.facts.is_paused

    world.live(fill)
    assert len(world.took) == 1


def test_a_server_that_does_not_greet_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: Connection) -> Any:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "identify_system", hang)
        world.plan = [([], None)] * 3
        seen: list[str] = []

        async def run() -> None:
            inbox: Any = SimpleNamespace(put=world.took.append)
            routes: Any = SimpleNamespace(worker=lambda *_: 0)
            down = Downstream(routes=routes, inboxes=[inbox], progress=world.progress, budget=world.budget)
            up = Upstream(source="eu", conninfo=world.conninfo, slot="s", publications=["p"], system_id="7")
            made = Reader(up, down, world.types, options=OPTIONS)
            running = asyncio.ensure_future(made.run())
            async with asyncio.timeout(30):
                while made.facts.error is None:  # noqa: ASYNC110 (it tells nobody)
                    await asyncio.sleep(0.001)
                seen.append(made.facts.error.message)
                made.stop()
                await running

        asyncio.run(run())
    assert seen == ["source eu: the server does not answer within 60 s"]
