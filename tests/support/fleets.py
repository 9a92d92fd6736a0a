"""Fleets to look at: sources and tables as they are on a good day and on a bad one, few or many."""

from __future__ import annotations

import dataclasses
from typing import Any

from kuvasz.admin.observer import Snapshot
from kuvasz.admin.slotwatch import SlotFacts
from kuvasz.errors import SchemaError
from kuvasz.parking.logs import ParkedView
from kuvasz.ports import Upkeep
from kuvasz.state.tables import State, TableState
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.view import SourceView
from tests.support.snapshots import CLOCK, FACTS, NOW, SLOT, SOURCE, TABLE, snapshot

#: What a shop has.
TABLES = ("customers", "items", "orders", "order_lines", "payments")


def upkeep(target: str, **facts: Any) -> Upkeep:
    """Return the files of a table of the lake."""
    good = Upkeep(
        target=target, files=212, bytes=37 << 30, rows=412_000_000, dead_rows=9_100_000, delete_files=14,
        snapshots=31, rewrites=77, last_at=NOW - 500, next_at=NOW + 60, changed_bytes=1 << 30,
        rewritten_bytes=2 << 30,
    )  # fmt: skip
    return dataclasses.replace(good, **facts)


def tables_of(source: str, names: tuple[str, ...] = TABLES, **facts: Any) -> list[TableState]:
    """Return the tables of a source."""
    return [
        dataclasses.replace(
            TABLE, source=source, target=f"shop.{name}", table=f"public.{name}", rows=1_240_000 + 3117 * at,
            last_commit_us=int((NOW - 2 - 946_684_800) * 1e6), **facts,
        )
        for at, name in enumerate(names)
    ]  # fmt: skip


def fleet(sources: list[SourceView], tables: list[TableState], slots: dict[str, SlotFacts], **view: Any) -> Snapshot:
    """Return a fleet at one moment."""
    base = snapshot()
    facts = {
        one.name: dataclasses.replace(
            FACTS, slot=slots.get(one.name, SLOT), fresh_at=NOW - 840 if one.state == "waiting" else NOW - 1
        )
        for one in sources
    }
    seen = dataclasses.replace(
        base.view, sources=tuple(sources), tables=tuple(tables), waiting_bytes=48 << 20, **view
    )
    return dataclasses.replace(base, view=seen, facts=facts, started_at=NOW - 400_000)


def few() -> Snapshot:
    """A day on which not all is well, of three sources."""
    eu = dataclasses.replace(SOURCE, name="shop_eu", rows=6_204_118)
    us = dataclasses.replace(
        SOURCE, name="shop_us", state="waiting", rows=5_102_993, is_pending=True,
        error="source shop_us: the server does not answer within 60 s\nhint: kuvasz reconnects by itself",
    )  # fmt: skip
    ap = dataclasses.replace(SOURCE, name="shop_ap", rows=884_210)
    tables = [*tables_of("shop_eu"), *tables_of("shop_us"), *tables_of("shop_ap")]
    tables[10] = dataclasses.replace(
        tables[10],
        state=State.COPYING,
        copy_done=34,
        copy_total=100,
        copied_rows=11_204_118,
        rows=0,
        copy_began=CLOCK - 310,
    )
    tables[11] = dataclasses.replace(
        tables[11], state=State.ERROR,
        error=SchemaError("its column price is a text now, and was numeric(12,2)", hint="kuvasz resync items"),
    )  # fmt: skip
    slots = {
        "shop_us": SlotFacts(
            retained_bytes=3 << 30, safe_bytes=9 << 30, status="reserved", wal_end=0x500, asked_at=NOW - 3,
            wal_rate=240_000.0,
        )
    }  # fmt: skip
    return fleet(
        [eu, us, ap], tables, slots, upkeep=tuple(upkeep(f"shop.{name}") for name in TABLES[:4]),
        parked={("shop.items", "shop_ap"): ParkedView(bytes=61 << 20, since=NOW - 900, first_lsn=1, is_full=False)},
        verdicts={
            ("shop.orders", "shop_eu"): Verdict(at=NOW - 7000, lsn="0/1", rows=9, differences=0, left=0),
            ("shop.customers", "shop_eu"): Verdict(at=NOW - 9000, lsn="0/1", rows=9, differences=4, left=3),
        },
    )  # fmt: skip


def many(sources: int = 2000, names: tuple[str, ...] = TABLES) -> Snapshot:
    """A good day of thousands of sources, but for one of them."""
    called = [f"shop_{at:04}" for at in range(sources)]
    views = [dataclasses.replace(SOURCE, name=name, rows=6_000 * (at % 97)) for at, name in enumerate(called)]
    views[1234 % sources] = dataclasses.replace(views[1234 % sources], state="error", error="source: it is gone")
    tables = [table for name in called for table in tables_of(name, names)]
    return fleet(views, tables, {}, upkeep=tuple(upkeep(f"shop.{name}") for name in names))


def hostile(name: str) -> Snapshot:
    """A source and a table with whatever names and errors somebody gave them."""
    called = name.replace("/", "")  # what is behind a slash names a member
    source = dataclasses.replace(SOURCE, name=called, state="error", error=f"{name}\nhint: {name}")
    tables = tables_of(called, (name,), state=State.ERROR, error=SchemaError(name, hint=name))
    return fleet([source], tables, {}, upkeep=(upkeep(f"shop.{name}", error=name),))


def events() -> list[dict[str, Any]]:
    """What happened to one of its sources."""
    told = [
        (
            "22:13:18",
            "error",
            "public.items",
            "a table failed: its column price is a text now",
        ),
        ("22:05:31", "info", "public.items", "files were merged: 31 into 4"),
        ("21:58:20", "warning", "public.items", "changes are parked"),
        ("20:16:40", "info", "public.orders", "a table was compared: equal"),
        ("07:06:44", "info", "", "the stream began"),
    ]
    return [
        {
            "at": f"2023-11-14T{at}.000+00:00", "severity": severity, "text": text, "table_name": table,
            "source": "shop_eu",
        }
        for at, severity, table, text in reversed(told)
    ]  # fmt: skip


def lags() -> list[tuple[float, float]]:
    """The lag of an hour, with an evil quarter of it."""
    return [
        (NOW - 3600 + 30 * at, 0.4 + 0.3 * (at % 3) + max(0.0, 34 - abs(at - 70) * 2.2)) for at in range(120)
    ]  # fmt: skip
