"""What the lake is told of a running kuvasz: events without rows and secrets, and of sources what is new."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.admin import about as admin_about
from kuvasz.admin.about import EventRows, SourceRows, is_news, telling
from kuvasz.admin.views import WITHHELD, ErrorView
from kuvasz.config import names
from kuvasz.errors import DecodeError, SchemaError
from kuvasz.events import Event, EventLog
from kuvasz.lake.memory.lake import MemoryAbout
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.worker.receipts import Receipts
from tests.support.snapshots import NOW, snapshot


def rows(namespace: str = "_kuvasz") -> EventRows:
    return EventRows(namespace, lambda text: text.replace("geheim", "***"), wall=lambda: NOW)


def told(event: Event, **facts: object) -> Any:
    (row,) = rows().of(event, facts)
    return row


def test_an_event_is_a_row_as_the_log_has_it() -> None:
    made = rows()
    (first,) = made.of(Event.PAUSE, {"source": "shop_eu", "table": "shop.items", "by": "anna"})
    (second,) = made.of(Event.SERVING, {})
    assert first == {
        "happened_at": datetime.datetime.fromtimestamp(NOW, datetime.UTC), "run": first["run"], "number": 1,
        "severity": "info", "event": "pause", "text": "a person pauses a table", "source": "shop_eu",
        "table_name": "shop.items", "fields": '{"by": "anna"}',
    }  # fmt: skip
    assert (second["run"], second["number"], second["source"], second["fields"]) == (first["run"], 2, None, "{}")
    assert first["run"] != told(Event.SERVING)["run"]


def test_what_is_not_printed_or_stands_elsewhere_is_no_row() -> None:
    for event, facts in (
        (Event.DURABLE, {}), (Event.COMMITTED, {"table": "shop.items"}), (Event.CHANGES, {"rows": 3}),
        (Event.SPARK_SAID, {"line": "x"}), (Event.COMPACTED, {"table": "_kuvasz.events"}),
    ):  # fmt: skip
        assert list(rows().of(event, facts)) == []
    assert told(Event.ABOUT_LOST, table="_kuvasz.events", rows=3)["table_name"] == "_kuvasz.events"
    assert told(Event.COMPACTED, table="shop.items")["event"] == "compacted"


def test_an_error_that_may_quote_a_row_is_for_the_log_alone() -> None:
    secret = json.loads(told(Event.TABLE_FAILED, table="shop.items", error="value '4711'")["fields"])
    assert secret == {"error": WITHHELD}
    assert json.loads(told(Event.SOURCE_FAILED, source="eu", error="no answer")["fields"]) == {"error": "no answer"}


def test_secrets_are_taken_out_wherever_they_stand() -> None:
    row = told(Event.PUBLICATION, source="geheim", statements=["a geheim"], sources={"geheim": DecodeError("geheim")})
    assert "geheim" not in json.dumps(row, default=str)
    assert json.loads(row["fields"]) == {"statements": ["a ***"], "sources": {"***": "***"}}
    assert json.loads(told(Event.COPIED, rows=5, seconds=0.5, source=None)["fields"]) == {"rows": 5, "seconds": 0.5}


def source_rows() -> SourceRows:
    return SourceRows({"shop_eu": "eu"}.get, ErrorView())


def test_a_text_of_a_source_is_as_long_as_there_is_room_for_and_no_longer() -> None:
    """Rows and notices wait by their number: a server may say any error, and a table may have any columns."""
    facts = {"source": "eu", "error": "x" * 8000 + "geheim", "columns": [f"{'c' * 5000}{n}" for n in range(1600)],
             "tables": {f"t{n}": ["a"] for n in range(1600)}}  # fmt: skip
    (row,) = rows().of(Event.SOURCE_FAILED, facts)
    told = json.loads(str(row["fields"]))
    assert told["error"] == "x" * 4000 + " …"
    assert (len(told["columns"]), told["columns"][-1]) == (101, "… and more: 1500")
    assert (len(told["tables"]), told["tables"]["… and more:"]) == (101, 1500)
    (short,) = rows().of(Event.SOURCE_FAILED, {"source": "eu", "error": "no", "columns": ["a"] * 100})
    assert json.loads(str(short["fields"])) == {"error": "no", "columns": ["a"] * 100}


def test_a_source_s_table_is_told_as_the_status_has_it() -> None:
    (row,) = source_rows().of(snapshot())
    assert row == {
        "seen_at": datetime.datetime.fromtimestamp(NOW, datetime.UTC), "source": "shop_eu", "source_sid": "eu",
        "target": "shop.items", "table_name": "public.items", "state": "streaming", "lsn": "0/500",
        "valid_through": datetime.datetime.fromtimestamp(NOW - 5, datetime.UTC), "rows_applied": 7,
        "bytes_applied": 0, "rows_copied": 40,
        "lag_seconds": 0.0, "wal_held_bytes": 4096, "error": None, "verified_at": None,
    }  # fmt: skip


def test_only_what_is_new_is_told() -> None:
    told_rows = source_rows()
    assert len(told_rows.of(snapshot())) == 1
    assert told_rows.of(snapshot(now=NOW + 10)) == []
    assert len(told_rows.of(snapshot(now=NOW + 20, table={"rows": 8}))) == 1
    (row,) = told_rows.of(snapshot(now=NOW + 30, table={"rows": 8, "state": State.PAUSED}))
    assert (row["state"], row["lsn"], row["valid_through"]) == ("paused", None, None)
    assert told_rows.of(snapshot(now=NOW + 400, table={"rows": 8, "state": State.PAUSED})) == []


def test_a_source_that_is_away_for_hours_is_told_to_lag_for_hours() -> None:
    """None of its tables goes any further, so nothing else of them changes: the last row must not say all is well."""
    away: dict[str, Any] = {"source": {"state": "waiting", "error": "no answer"}, "facts": {"fresh_at": NOW - 1}}
    told_rows = source_rows()
    assert [row["lag_seconds"] for row in told_rows.of(snapshot(**away))] == [1.0]
    assert told_rows.of(snapshot(now=NOW + 59, **away)) == []
    assert [row["lag_seconds"] for row in told_rows.of(snapshot(now=NOW + 60, **away))] == [61.0]
    assert [row["lag_seconds"] for row in told_rows.of(snapshot(now=NOW + 7200, **away))] == [7201.0]


def test_when_a_member_was_compared_is_told() -> None:
    member = names.member_name("shop_eu", "items_7")
    found = snapshot(table={"source": member}, verdicts={("shop.items", member): Verdict(at=NOW)})
    assert [row["verified_at"] for row in source_rows().of(found)] == [
        datetime.datetime.fromtimestamp(NOW, datetime.UTC)
    ]


def test_when_a_table_was_compared_is_told() -> None:
    told_rows = source_rows()
    (row,) = told_rows.of(snapshot(verdicts={("shop.items", "shop_eu"): Verdict(tried_at=NOW)}))
    assert row["verified_at"] is None
    (row,) = told_rows.of(snapshot(now=NOW + 10, verdicts={("shop.items", "shop_eu"): Verdict(at=NOW)}))
    assert row["verified_at"] == datetime.datetime.fromtimestamp(NOW, datetime.UTC)


def test_a_table_that_is_valid_for_longer_is_told_once_a_minute() -> None:
    row: dict[str, Any] = {
        "seen_at": datetime.datetime.fromtimestamp(NOW, datetime.UTC),
        "valid_through": 1,
        "state": "x",
        "lag_seconds": 0.0,
    }
    later = row | {"valid_through": 2}
    assert not is_news(later | {"seen_at": row["seen_at"] + datetime.timedelta(seconds=59)}, row)
    assert is_news(later | {"seen_at": row["seen_at"] + datetime.timedelta(seconds=60)}, row)
    assert is_news(later | {"state": "y"}, row)
    assert is_news(row, None)


@pytest.mark.parametrize(
    ("error", "shown"),
    [(DecodeError("value '4711' is no number"), WITHHELD), (SchemaError("column a is gone"), "column a is gone")],
)
def test_an_error_of_a_table_quotes_no_row(error: Any, shown: str) -> None:
    (row,) = source_rows().of(snapshot(table={"state": State.ERROR, "error": error}))
    assert (row["state"], row["error"]) == ("error", shown)


def test_an_error_of_a_source_is_its_tables() -> None:
    (row,) = source_rows().of(snapshot(source={"error": "no answer", "state": "waiting"}))
    assert row["error"] == "no answer"


class World:
    """An application with a lake in memory, and an observer of it."""

    def __init__(self, namespace: str | None) -> None:
        self.about = MemoryAbout()
        self.about.namespace = namespace
        self.app: Any = SimpleNamespace(
            lake=SimpleNamespace(about=self.about), receipts=Receipts(), phase="starting",
            sync=lambda _: SimpleNamespace(source=SimpleNamespace(sid="eu")),
        )  # fmt: skip
        self.is_seen = asyncio.Event()
        self.observer: Any = SimpleNamespace(show=self._show)

    async def _show(self, make: Any) -> Any:
        self.is_seen.set()
        return make(snapshot(phase=self.app.phase))


def test_events_and_sources_are_told_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_about, "_STEP_S", 0.01)
    monkeypatch.setattr(logging.getLogger("kuvasz"), "level", logging.INFO)
    world, log = World("_kuvasz"), EventLog("kuvasz.test")

    async def run() -> None:
        log.tell(Event.LAKE_OPEN, seconds=1)
        async with telling(world.app, world.observer, str):
            log.tell(Event.CAUGHT_UP)
            await asyncio.sleep(0)  # until the phase of before is known
            world.app.phase = "running"
            async with asyncio.timeout(30):
                await world.is_seen.wait()
            await asyncio.sleep(0)
        log.tell(Event.SERVING)

    asyncio.run(run())
    assert [row["event"] for row in world.about.told["events"]] == ["caught_up"]
    assert [row["source_sid"] for row in world.about.told["sources"]] == ["eu"]


def test_a_source_that_leaves_the_map_meanwhile_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_about, "_STEP_S", 0.01)
    world = World("_kuvasz")

    def gone(_: str) -> Any:
        raise KeyError

    world.app.sync = gone

    async def run() -> None:
        async with telling(world.app, world.observer, str):
            await asyncio.sleep(0)
            world.app.phase = "running"
            async with asyncio.timeout(30):
                await world.is_seen.wait()
            await asyncio.sleep(0)

    asyncio.run(run())
    assert [row["source_sid"] for row in world.about.told["sources"]] == [None]


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_about, "_STEP_S", 0.01)
    monkeypatch.setattr(admin_about, "_LOOK_S", 0.02)
    monkeypatch.setattr(admin_about, "_PAUSE_TO_LOOK", 0.0)
    world = World("_kuvasz")
    looks = 0

    async def show(make: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ValueError("year 294277 is out of range")
        return await world._show(make)

    world.observer.show = show

    async def run() -> None:
        async with telling(world.app, world.observer, str), asyncio.timeout(30):
            await world.is_seen.wait()
            await asyncio.sleep(0)

    asyncio.run(run())
    assert world.about.told["sources"]


def test_a_lake_without_such_tables_is_told_nothing() -> None:
    world, log = World(None), EventLog("kuvasz.test")

    async def run() -> None:
        async with telling(world.app, world.observer, str):
            log.tell(Event.CAUGHT_UP)

    asyncio.run(run())
    assert world.about.told == {}
