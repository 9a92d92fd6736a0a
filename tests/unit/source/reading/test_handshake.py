"""What is made sure of on a new connection, by what a server says that a test describes."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SlotLost, SourceReplaced
from kuvasz.model import Applied, SourcePosition
from kuvasz.source.reading.connection import SystemIdentity
from kuvasz.source.reading.ends import StreamStart, Upstream
from kuvasz.source.reading.facts import ReaderFacts
from kuvasz.source.reading.handshake import Handshake
from kuvasz.source.slots import SlotState
from kuvasz.state.memory import MemoryState
from kuvasz.state.ports import SourceRecord, StoredRecord
from kuvasz.state.progress import Progress
from kuvasz.state.source_record_file import SourceRecordFile

UPSTREAM = Upstream(source="eu", conninfo=str, slot="kuvasz_eu", publications=["p"], system_id="7")
SLOT = SlotState(
    name="kuvasz_eu", plugin="pgoutput", database="shop", is_temporary=False, active_pid=None,
    confirmed_flush_lsn=1500, restart_lsn=1000, wal_status="reserved", safe_wal_bytes=None, retained_bytes=0,
)  # fmt: skip


class World:
    """A server that goes on from where it was left."""

    def __init__(self, standing: SourceRecord | None) -> None:
        self.identity = SystemIdentity(system_id="7", timeline=1, flush_lsn=9000, database="shop")
        self.slot: SlotState | None = SLOT
        self.history: dict[int, int] = {}
        self.asked_history: list[int] = []
        self.progress, self.facts = Progress(), ReaderFacts()
        self.fallen_back: list[int] = []
        self.progress.restarted("eu", 1)
        self.expected: list[Applied] = []
        self.applied: list[Applied] = []
        self.applied_lsn = 1200
        self.copied: list[SourcePosition] = []
        self.record: StoredRecord | None = None if standing is None else MemoryState().record("eu")
        if self.record is not None and standing is not None:
            self.record.update(standing)

    async def _switches(self, timeline: int) -> dict[int, int]:
        self.asked_history.append(timeline)
        return self.history

    def check(self) -> None:
        async def answer(value: Any) -> Any:
            return value

        connection: Any = SimpleNamespace(
            identify_system=lambda: answer(self.identity), slot=lambda name: answer(self.slot),
            timeline_switches=self._switches, started_us=lambda: answer(66),
        )  # fmt: skip
        assembler: Any = SimpleNamespace(expect=self.expected.extend)
        start = StreamStart(
            record=self.record,
            applied_lsn=lambda: self.applied_lsn,
            copied=lambda: self.copied,
            applied=lambda: self.applied,
            on_rewound=self.fallen_back.append,
        )
        handshake = Handshake(UPSTREAM, self.progress, assembler, self.facts, start)
        asyncio.run(handshake.check(connection))


KNOWN = SourceRecord(system_id="7", timeline=1, confirmed_lsn=1500, started_us=66, proved_lsn=1100)


@pytest.fixture
def world() -> World:
    return World(KNOWN)


def test_a_source_that_goes_on_is_let_go_on(world: World) -> None:
    world.check()
    assert world.record is not None
    assert world.record.standing == KNOWN
    assert (world.facts.confirmed_lsn, world.asked_history) == (0, [])


def test_another_cluster_is_refused_before_anything_is_noted(world: World) -> None:
    world.identity = dataclasses.replace(world.identity, system_id="8")
    with pytest.raises(SourceReplaced) as caught:
        world.check()
    assert caught.value.message == "source eu: cluster 8 answers, not 7"
    assert world.record is not None
    assert world.record.standing == KNOWN


def test_who_keeps_no_record_compares_nothing_else() -> None:
    world = World(None)
    world.slot = None
    world.check()
    assert world.expected == []


def test_a_slot_that_is_gone_is_a_gap(world: World) -> None:
    world.slot = None
    with pytest.raises(SlotLost):
        world.check()


def test_what_is_about_to_be_confirmed_counts_as_confirmed(world: World) -> None:
    world.slot = dataclasses.replace(SLOT, confirmed_flush_lsn=1700)
    with pytest.raises(SlotLost):
        world.check()
    world.progress.received("eu", 1800)
    world.check()


def test_transactions_that_the_slot_was_not_told_have_to_come_again(world: World) -> None:
    early, late = Applied(1400), Applied(1600)
    world.applied = [early, late]
    world.check()
    assert world.expected == [late]


def test_a_server_that_was_started_anew_has_to_prove_what_it_has(world: World) -> None:
    assert world.record is not None
    world.record.update(dataclasses.replace(KNOWN, started_us=1))
    world.check()
    assert (world.record.standing.proved_lsn, world.record.standing.started_us) == (0, 66)


def test_a_standby_that_took_over_goes_on_from_its_own_slot(world: World) -> None:
    """What was confirmed to the old primary may lie beyond the WAL of this one."""
    world.identity = dataclasses.replace(world.identity, timeline=2)
    world.history = {1: 1450}
    world.slot = dataclasses.replace(SLOT, confirmed_flush_lsn=1300)
    assert world.record is not None
    world.record.update(dataclasses.replace(KNOWN, looked_lsn=1490))
    world.check()
    assert world.asked_history == [2]
    standing = world.record.standing
    assert world.fallen_back == [standing.looked_lsn] == [1200], "what was seen there was of a past that is gone"
    assert (standing.timeline, standing.confirmed_lsn, standing.proved_lsn) == (2, 1300, 1200)
    assert world.facts.confirmed_lsn == 1300
    assert world.progress.confirmable("eu") == 1300


def test_a_copy_of_the_old_primary_stays_proved_for_the_next_process(world: World, tmp_path: Path) -> None:
    world.record = SourceRecordFile(tmp_path, "eu", "boot")
    world.record.update(dataclasses.replace(KNOWN, started_us=1))
    world.copied = [SourcePosition(lsn=1200, started_us=1)]
    world.identity = dataclasses.replace(world.identity, timeline=2)
    world.history = {1: 1450}
    world.slot = dataclasses.replace(SLOT, confirmed_flush_lsn=1100)
    world.check()
    world.record = SourceRecordFile(tmp_path, "eu", "boot")
    world.check()
    world.copied = [SourcePosition(lsn=1201, started_us=1)]
    with pytest.raises(SourceReplaced, match="nothing proves"):
        world.check()


def test_one_that_lacks_what_the_lake_has_is_refused(world: World) -> None:
    world.identity = dataclasses.replace(world.identity, timeline=2)
    world.history = {1: 1100}
    with pytest.raises(SourceReplaced):
        world.check()
