from __future__ import annotations

import io

import pytest
from rich.console import Console

from kuvasz import console
from kuvasz.console import Rates, render
from kuvasz.errors import TableError
from kuvasz.state.tables import State, TableState
from kuvasz.view import SourceView, View


def source(name: str = "shop_eu", state: str = "streaming", **facts: object) -> SourceView:
    return SourceView(**{
        "name": name, "state": state, "error": None, "received_lsn": 0, "confirmed_lsn": 0x16B374D848,
        "confirmable_lsn": 0, "rows": 0, "epoch": 1, "commit_us": None, "last_message_at": None, "is_pending": False,
        "is_paused": False, **facts,
    })  # fmt: skip


def table(name: str = "items", state: State = State.STREAMING, **facts: object) -> TableState:
    return TableState(target=f"shop.{name}", source="shop_eu", table=f"public.{name}", state=state, **facts)


def drawn(*tables: TableState, sources: tuple[SourceView, ...] = (source(),), phase: str = "running") -> str:
    view = View(phase=phase, sources=sources, tables=tables, waiting_bytes=0, commit_conflicts=0)
    out = Console(file=io.StringIO(), width=200, force_terminal=False)
    out.print(render(view, Rates()))
    return out.file.getvalue()


def test_a_source_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.time, "time", lambda: 946684800 + 12.5)
    text = drawn(table(), table("orders", last_commit_us=10_000_000))
    (line,) = text.strip().splitlines()
    assert line.startswith("shop_eu")
    for part in ("streaming", "items:streaming orders:streaming", "confirmed 16/B374D848", "newest change 2.5 s old"):
        assert part in line


def test_many_tables_are_counted() -> None:
    tables = [table(f"t{number}") for number in range(5)] + [table("bad", State.ERROR, error=TableError("no"))]
    assert "6 tables, 1 in error" in drawn(*tables)


def test_a_copying_table_has_a_bar() -> None:
    text = drawn(table(state=State.COPYING, copy_done=1, copy_total=3, copied_rows=12345))
    assert "copy shop_eu public.items" in text
    assert "33 %" in text
    assert "12,345 rows" in text
    assert "0 %" in drawn(table(state=State.COPYING))


def test_of_many_sources_the_worst_are_shown_and_the_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.time, "time", lambda: 946684800 + 1000.0)
    views = [source(f"shop_{number:03d}", is_pending=number % 2 == 1) for number in range(200)]
    views[7] = source("shop_007", "error")
    views[8] = source("shop_008", "waiting")
    tables = [
        TableState(
            target="shop.items", source=one.name, table="public.items", last_commit_us=(900 - number) * 1_000_000,
            state=State.ERROR if number == 9 else State.STREAMING,
        )
        for number, one in enumerate(views)
    ]  # fmt: skip
    lines = drawn(*tables, sources=tuple(views)).strip().splitlines()
    shown = [line.split()[0] for line in lines[:-1]]
    assert shown == ["shop_007", "shop_009", "shop_008", *(f"shop_{number}" for number in range(199, 185, -2))]
    assert lines[-1] == (
        "all 200 sources: 198 streaming, 1 error, 1 waiting; 200 tables, 1 in error; 0 rows/s; the 10 above are the"
        " worst"
    )


def test_of_few_sources_all_are_shown_in_the_order_of_the_map() -> None:
    views = tuple(source(f"shop_{number}", "streaming" if number else "error") for number in reversed(range(10)))
    shown = [line.split()[0] for line in drawn(sources=views).strip().splitlines()]
    assert shown == [one.name for one in views]


def test_of_many_copies_some_are_shown_and_how_many_more_there_are() -> None:
    copies = [table(f"t{number}", State.COPYING, copied_rows=100) for number in range(50)]
    lines = drawn(*copies).strip().splitlines()
    assert len(lines) == 12
    assert lines[10] == "copy 50 tables, 40 of them not shown: 5,000 rows"


def test_the_start_is_told() -> None:
    assert "starting spark" in drawn(phase="starting", sources=())
    assert "starting spark" not in drawn()


def test_the_last_frame_of_a_clean_stop_says_so() -> None:
    ended = source(state="starting", confirmed_lsn=0, confirmable_lsn=0x16B374D848)
    (line,) = drawn(table(), sources=(ended,), phase="stopping").strip().splitlines()
    assert "stopped" in line
    assert "starting" not in line
    assert "confirmed 16/B374D848" in line
    assert "error" in drawn(sources=(source(state="error"),), phase="stopping")


def test_rates_are_smoothed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    rates = Rates()
    assert rates.of("eu", 1000) == 0.0
    now[0] = 100.1
    assert rates.of("eu", 1100) == 0.0, "too soon to say"
    now[0] = 101.0
    assert rates.of("eu", 1500) == pytest.approx(500.0)
    now[0] = 102.0
    assert rates.of("eu", 1500) == pytest.approx(250.0)
    assert rates.of("us", 7) == 0.0
