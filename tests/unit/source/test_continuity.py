from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz.errors import SlotLost, SourceReplaced
from kuvasz.model import Applied, SourcePosition
from kuvasz.source import continuity
from kuvasz.source.continuity import ServerState
from kuvasz.source.slots import SlotState
from kuvasz.state.ports import SourceRecord

SLOT = SlotState(
    name="kuvasz_shop", plugin="pgoutput", database="shop", is_temporary=False, active_pid=None,
    confirmed_flush_lsn=0x100, restart_lsn=0x90, wal_status="reserved", safe_wal_bytes=None, retained_bytes=None,
)  # fmt: skip
KNOWN = SourceRecord(system_id="71", timeline=2, confirmed_lsn=0x100)
SERVER = ServerState(system_id="71", timeline=2, wal_lsn=0x200, slot_name=SLOT.name, slot=SLOT)
APPLIED = 0xF0


def why_lost(standing: SourceRecord, applied_lsn: int, server: ServerState) -> str | None:
    error = continuity.lost("eu", standing, applied_lsn, server, "/x/file")
    return None if error is None else error.message.removeprefix("source eu: ")


def changed(**facts: object) -> ServerState:
    return dataclasses.replace(SERVER, **facts)


def slot(*, started_us: int = 0, timeline: int = SERVER.timeline, **facts: object) -> ServerState:
    return changed(slot=dataclasses.replace(SLOT, **facts), started_us=started_us, timeline=timeline)


@pytest.mark.parametrize(
    "server",
    [
        SERVER,
        slot(confirmed_flush_lsn=0x80),  # a server that crashed may forget what it was told
        slot(confirmed_flush_lsn=None),
        changed(wal_lsn=0x100),
        changed(timeline=3, switches={1: 0x10, 2: 0x100}),  # a standby that had everything took over
        dataclasses.replace(
            slot(confirmed_flush_lsn=APPLIED, timeline=3), switches={2: APPLIED}, wal_lsn=APPLIED
        ),  # that nothing of it was confirmed is known
        changed(timeline=3),  # the history is asked for by the reader
    ],
)
def test_goes_on(server: ServerState) -> None:
    assert why_lost(KNOWN, APPLIED, server) is None


COPIED = SourcePosition(lsn=0x90, started_us=5)
BEHIND = Applied(0x90, 7, 8)


def witness(server: ServerState, *applied: Applied, copied: SourcePosition = COPIED, **known: Any) -> Applied | None:
    standing = dataclasses.replace(KNOWN, started_us=5, **known)
    return continuity.witness("eu", standing, [copied], applied, server)


@pytest.mark.parametrize(
    "server",
    [
        slot(confirmed_flush_lsn=0x80, started_us=5),  # the same server, with another connection
        slot(confirmed_flush_lsn=COPIED.lsn, started_us=6),  # it was confirmed behind the copy
        slot(confirmed_flush_lsn=0x80, started_us=6, timeline=3),  # that its timeline has it was looked at
    ],
)
def test_a_copy_is_proved(server: ServerState) -> None:
    assert witness(server) is None


def test_a_timeline_that_was_looked_at_proves_as_long_as_its_server_is_up() -> None:
    late = dataclasses.replace(COPIED, started_us=4)
    assert witness(slot(confirmed_flush_lsn=0x80, started_us=5), copied=late, proved_lsn=0x90) is None
    for server, proved_lsn in ((slot(started_us=6), 0x90), (slot(started_us=5), 0x8F)):
        with pytest.raises(SourceReplaced):
            witness(dataclasses.replace(server, slot=None), copied=late, proved_lsn=proved_lsn)


def test_a_transaction_behind_a_copy_has_to_come_again_until_it_is_proved() -> None:
    server = slot(confirmed_flush_lsn=0x80, started_us=6)
    assert witness(server, Applied(0x8F), Applied(0xA0), BEHIND) == BEHIND, "the first"
    assert witness(server, witness=BEHIND) == BEHIND, "also when its own table is copied again meanwhile"
    assert witness(slot(confirmed_flush_lsn=0x90, started_us=6), witness=BEHIND) is None


def test_a_copy_that_nothing_proves() -> None:
    for server in (slot(confirmed_flush_lsn=COPIED.lsn - 1, started_us=6), changed(slot=None, started_us=6)):
        with pytest.raises(SourceReplaced, match="nothing proves that it has what was copied as of 0/90: an older"):
            witness(server, Applied(COPIED.lsn - 1))


def test_a_copy_of_an_earlier_version_counts_while_nobody_knows_better() -> None:
    late, old = slot(confirmed_flush_lsn=0x80, started_us=6), SourcePosition(lsn=0x90)
    assert witness(dataclasses.replace(late, started_us=5), copied=old) is None
    assert continuity.witness("eu", KNOWN, [old], [], late) is None
    with pytest.raises(SourceReplaced):
        witness(late, copied=old)


def test_what_is_not_known_is_not_compared() -> None:
    assert why_lost(SourceRecord(), 0, slot(confirmed_flush_lsn=0x1FF)) is None
    assert why_lost(SourceRecord(), APPLIED, changed(timeline=1)) is None


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (changed(system_id="72"), "cluster 72 answers, not 71"),
        (changed(slot=None), "slot kuvasz_shop is gone: the changes between 0/100 and 0/200 are missing"),
        (
            slot(wal_status="lost"),
            "slot kuvasz_shop cannot be used: the server removed WAL that it needed (max_slot_wal_keep_size):"
            " the changes between 0/100 and 0/200 are missing",
        ),
        (
            slot(confirmed_flush_lsn=0x101),
            "slot kuvasz_shop was advanced by someone else: the changes between 0/100 and 0/101 are missing",
        ),
        (  # made anew on a standby that took over, and lacks what was confirmed last
            dataclasses.replace(slot(confirmed_flush_lsn=0xF8, timeline=3), switches={2: 0xF4}, wal_lsn=0xF9),
            "slot kuvasz_shop was advanced by someone else: the changes between 0/F4 and 0/F8 are missing",
        ),
        (changed(timeline=1), "its timeline went back from 2 to 1: an older backup was restored"),
        (changed(timeline=4, switches={1: 0x10}), "its timeline 4 does not come from 2"),
        (
            changed(timeline=3, switches={2: APPLIED - 1}),
            "its timeline 3 left timeline 2 at 0/EF, and the lake has its changes up to 0/F0",
        ),
        (
            changed(wal_lsn=0xF8),
            "its WAL ends at 0/F8, and it was confirmed up to 0/100: an older backup was restored",
        ),
        (changed(wal_lsn=0xE0), "its WAL ends at 0/E0, and the lake has its changes up to 0/F0: an older backup"),
    ],
)
def test_tells_why_it_cannot_go_on(server: ServerState, told: str) -> None:
    why = why_lost(KNOWN, APPLIED, server)
    assert why is not None
    assert told in why


@pytest.mark.parametrize(("server", "kind"), [
    (changed(system_id="72"), SourceReplaced), (changed(wal_lsn=0xE0), SourceReplaced),
    (changed(slot=None), SlotLost), (slot(wal_status="lost"), SlotLost),
])  # fmt: skip
def test_tells_another_source_from_a_slot_that_is_lost(server: ServerState, kind: type[SlotLost]) -> None:
    error = continuity.lost("eu", KNOWN, APPLIED, server, "/x/file")
    assert type(error) is kind
    assert continuity.lost("eu", KNOWN, APPLIED, SERVER, "/x/file") is None


def test_without_a_note_the_lake_says_what_is_missing() -> None:
    assert why_lost(SourceRecord(), APPLIED, changed(slot=None)) == (
        "slot kuvasz_shop is gone: the changes between 0/F0 and 0/200 are missing"
    )


def test_only_an_advanced_slot_may_be_a_mistake_of_ours() -> None:
    why = why_lost(KNOWN, APPLIED, slot(confirmed_flush_lsn=0x101))
    assert why is not None
    assert "then remove /x/file" in continuity.hint("shop_eu", why, "/x/file")
    assert continuity.hint("shop_eu", "slot kuvasz_shop is gone", "/x/file") == (
        "copy the source again: kuvasz resync --sid shop_eu, or `on_slot_lost: repair` or `resync`"
    )


def test_reads_a_timelines_history() -> None:
    text = "1\t0/3000000\tno recovery target specified\n\n# made by hand\n2\t1/40\tbefore 2020-01-01"
    assert continuity.switches(text) == {1: 0x3000000, 2: 0x1_0000_0040}
