"""The summaries of what commits brought."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kuvasz.admin.report import change_report
from kuvasz.admin.report.change_report import ChangeReport
from kuvasz.model import POSTGRES_EPOCH_US, Operations, SourcePosition
from kuvasz.ports import Receipt

NOW = 2_000_000_000.0


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kuvasz")


def receipt(target: str = "shop.items", snapshot_id: int | None = 7, **rows: int) -> Receipt:
    at = int((NOW - 2.5) * 1e6) - POSTGRES_EPOCH_US
    return Receipt(
        target=target, snapshot_id=snapshot_id, rows=sum(rows.values()), rows_of=rows,
        positions={source: SourcePosition(lsn=0x500 + count, commit_us=at) for source, count in rows.items()},
        operations_of={source: Operations(inserts=count) for source, count in rows.items()},
    )  # fmt: skip


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    standard = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime", "event"}
    found = [{name: value for name, value in record.__dict__.items() if name not in standard}
             for record in caplog.records if record.__dict__["event"] == "changes"]  # fmt: skip
    caplog.clear()
    return found


def made(most_lines: int = 10) -> ChangeReport:
    moments = iter([10.0, 70.0, 131.0, 192.0])
    return ChangeReport(lambda: NOW, lambda: next(moments), most_lines)


def test_a_source_that_had_changes_has_one_line_with_their_sums(caplog: pytest.LogCaptureFixture) -> None:
    report = made()
    for one in (receipt(eu=3, us=1), receipt(eu=4), receipt("shop.orders", eu=1), receipt(snapshot_id=None, eu=2)):
        report.note(one)
    report.tell()
    facts = {"seconds": 60.0, "updates": 0, "deletes": 0, "lag_s": 2.5}
    assert told(caplog) == [
        {"source": "eu", "rows": 10, "inserts": 10, "commits": 3, "tables": 2, "lsn": "0/504", **facts},
        {"source": "us", "rows": 1, "inserts": 1, "commits": 1, "tables": 1, "lsn": "0/501", **facts},
    ]
    report.note(receipt(us=1))
    report.tell()
    assert [(one["source"], one["seconds"]) for one in told(caplog)] == [("us", 61.0)]
    report.tell()
    assert told(caplog) == [], "nothing came"


def test_tables_of_a_source_that_are_one_target_are_that_source(caplog: pytest.LogCaptureFixture) -> None:
    report = made()
    report.note(receipt(**{"eu/16401": 3, "eu/16402": 4}))
    report.tell()
    assert [(one["source"], one["rows"], one["commits"]) for one in told(caplog)] == [("eu", 7, 1)]


def test_of_too_many_sources_those_with_the_most_rows_have_their_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    report = made(2)
    report.note(receipt(**{f"s{number}": number for number in range(1, 6)}))
    report.tell()
    first, second, rest = told(caplog)
    assert [first["source"], second["source"]] == ["s5", "s4"]
    assert (rest["sources"], rest["rows"], rest["tables"], rest["slowest"]) == (3, 6, 1, "s3")


def test_the_last_one_is_told_at_the_end(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_report, "EVERY_S", 0.001)

    async def live() -> None:
        report = ChangeReport(lambda: NOW)
        async with report.telling():
            report.note(receipt(eu=1))
            while not caplog.records:  # noqa: ASYNC110 (a log tells nobody)
                await asyncio.sleep(0.001)
            monkeypatch.setattr(change_report, "EVERY_S", 600.0)
            await asyncio.sleep(0.01)
            report.note(receipt(eu=2))

    asyncio.run(live())
    assert [one["rows"] for one in told(caplog)] == [1, 2]
