"""Snapshots for tests: one source with one table, each fact as it is on a good day."""

from __future__ import annotations

import dataclasses
from typing import Any

from kuvasz.admin.observer import Snapshot, SourceFacts
from kuvasz.admin.slotwatch import SlotFacts
from kuvasz.parking.logs import ParkedView
from kuvasz.state.progress import Durable
from kuvasz.state.staged.ports import LogGroup
from kuvasz.state.tables import State, TableState
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.view import SourceView, StagedView, View

NOW = 1_700_000_000.0
CLOCK = 5_000.0

SOURCE = SourceView(
    name="shop_eu", state="streaming", error=None, received_lsn=0x500, confirmed_lsn=0x480, confirmable_lsn=0x500,
    rows=7, epoch=1, commit_us=None, last_message_at=CLOCK - 2, is_pending=False, is_paused=False,
    durable=Durable(confirmable=0x500, received=0x500),
)  # fmt: skip
TABLE = TableState(
    target="shop.items", source="shop_eu", table="public.items", state=State.STREAMING, since=CLOCK - 60, rows=7,
    inserts=4, updates=2, deletes=1,
    copied_rows=40, copy_done=4, copy_total=4, commits=3, last_commit_us=1_000_000, last_commit_seconds=0.05,
)  # fmt: skip
SLOT = SlotFacts(retained_bytes=4096, safe_bytes=None, status="reserved", wal_end=0x500, asked_at=NOW - 3)
FACTS = SourceFacts(slot=SLOT, fresh_at=NOW - 3, known=((0, NOW - 10), (0x500, NOW - 4), (0x600, NOW - 2)))
STAGED = StagedView(
    waiting_bytes=70, is_full=False, objects=3, staged_at=CLOCK - 1, error=None, lsns={"shop_eu": 0x490},
    groups=(LogGroup(name="blue", objects=2, behind_s=61.5, lives=False),),
)  # fmt: skip


def snapshot(
    *,
    source: dict | None = None,
    table: dict | None = None,
    facts: dict | None = None,
    phase: str = "running",
    parked: dict[tuple[str, str], ParkedView] | None = None,
    verdicts: dict[tuple[str, str], Verdict] | None = None,
    staged: StagedView | None = None,
    **more: Any,
) -> Snapshot:
    """Return a snapshot; what is named differs from a good day."""
    view = View(
        phase=phase,
        sources=(dataclasses.replace(SOURCE, **(source or {})),),
        tables=(dataclasses.replace(TABLE, **(table or {})),),
        waiting_bytes=10,
        commit_conflicts=2,
        parked=parked or {},
        verdicts=verdicts or {},
        staged=staged,
    )
    good = {"now": NOW, "clock": CLOCK, "started_at": NOW - 100, "heard_at": CLOCK - 2, "moved_at": CLOCK}
    facts_of = {"shop_eu": dataclasses.replace(FACTS, **(facts or {}))}
    return Snapshot(view=view, facts=facts_of, memory_bytes=1 << 30, **{**good, **more})
