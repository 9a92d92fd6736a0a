"""Whatever a source calls its tables, no log line, terminal or JSON document is steered or broken by it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from typing import Any

import pytest
from rich.console import Console

from kuvasz import cli, console, log
from kuvasz.errors import TableError, place_of
from kuvasz.model import TableName
from kuvasz.shown import escapes
from kuvasz.source.check.finding import Finding
from kuvasz.state.tables import State, TableState
from kuvasz.verbs import check, cleanup, maintain, plan, remote, verify
from kuvasz.verbs.cleanup import Step
from kuvasz.verbs.plan import ColumnPlan, SourcePlan, TablePlan
from kuvasz.verify.report import Report
from kuvasz.view import SourceView, View

#: Markup that ends nothing, a forged line, clear screen as ESC and as C1, text that runs backwards.
NAME = "[/b][link=x]\n12:00:00 error kuvasz stops\x1b[2J\x9b2J\u202eslevart"
SHOWN = escapes.one_line(NAME)

ERROR = TableError(f"{place_of('eu', NAME)}: no column {NAME}", hint=f"drop {NAME}")


def is_harmless(text: str) -> bool:
    """Whether a text prints, and has no line that begins as the name would have it."""
    lines = text.split("\n")
    return all(line.isprintable() for line in lines) and not any(line.startswith("12:00:00 error") for line in lines)


def drawn(what: Any) -> str:
    out = Console(file=io.StringIO(), width=1000)
    out.print(what)
    return out.file.getvalue()


@pytest.mark.parametrize("log_format", ["plain", "json"])
def test_a_log_line_is_one_line(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    log.set_up(log_format, [])
    logger = logging.getLogger("kuvasz.hostile")
    logger.warning("a table stops", extra={"event": "x", "table": NAME, "error": str(ERROR)})
    with contextlib.suppress(ValueError):
        logger.info("renamed", extra={"event": "x", "names": [NAME, TableName(schema=NAME, name=NAME)]})
        raise ValueError(NAME)
    try:
        raise ValueError(NAME)
    except ValueError:
        logger.exception("a bug")
    written = capsys.readouterr().err
    assert is_harmless(written)
    if log_format == "json":
        assert json.loads(written.splitlines()[0])["table"] == NAME


def status() -> dict[str, Any]:
    table = {
        "table": NAME, "target": NAME, "state": "error", "since": "2026-01-01T00:00:00.5Z", "retry_at": None,
        "error": {"kind": "TableError", "message": ERROR.message, "hint": ERROR.hint, "retry": "human"},
        "copy_progress": None, "copied_rows": 0, "rows": 0, "newest_change_at": None, "parked": None,
        "why_copy": NAME,
    }  # fmt: skip
    source = {
        "source": NAME, "state": "error", "error": str(ERROR), "retry_at": None, "lag_seconds": None,
        "lag_bytes": None, "confirmed_lsn": "0/0", "slot": None, "tables": [table],
    }  # fmt: skip
    files = {
        "target": NAME, "files": 1, "average_bytes": 1, "dead_share": 0.0, "delete_files": 0, "snapshots": None,
        "rewritten_bytes": 0, "changed_bytes": 0, "error": NAME, "last_at": None, "next_at": None,
    }  # fmt: skip
    return {
        "version": "0", "phase": "running", "started_at": "2026-01-01T00:00:00.5Z", "waiting_bytes": 0,
        "memory_bytes": 1, "sources": [source], "maintenance": [files],
    }  # fmt: skip


def test_status_shows_it() -> None:
    text = drawn(remote.render(status()))
    assert is_harmless(text)
    assert text.count(SHOWN) >= 5


def test_the_live_view_shows_it() -> None:
    source = SourceView(
        name=NAME, state="streaming", error=NAME, received_lsn=0, confirmed_lsn=0, confirmable_lsn=0, rows=0, epoch=1,
        commit_us=None, last_message_at=None, is_pending=False, is_paused=False,
    )  # fmt: skip
    tables = tuple(
        TableState(target=NAME, source=NAME, table=NAME, state=one) for one in (State.COPYING, State.ERROR)
    )
    view = View(phase="running", sources=(source,), tables=tables, waiting_bytes=0, commit_conflicts=0)
    text = drawn(console.render(view, console.Rates()))
    assert is_harmless(text)
    assert text.count(SHOWN) == 2


RENDERED = {
    "check": lambda: check.render(
        [Finding(source=NAME, table=TableName(schema="a", name=NAME), check="key", value=NAME, needed=NAME, ok=False,
                 fix=NAME)]
    ),
    "plan": lambda: plan.render(
        [SourcePlan(
            source=NAME, location=NAME, slot=NAME, is_new_slot=True, statements=(NAME,), error=NAME, hint=NAME,
            tables=(
                TablePlan(table=NAME, target=NAME, action="error", error=NAME, hint=NAME),
                TablePlan(
                    table=NAME, target=NAME, action="copy", mapped=NAME, warnings=(NAME,),
                    columns=(ColumnPlan(name=NAME, postgresql=NAME, iceberg="int", note=NAME, is_key=True,
                                        is_new=True),),
                ),
            ),
        )]
    ),
    "verify": lambda: verify.render([Report(source=NAME, table=NAME, target=NAME, skipped=NAME)]),
    "cleanup": lambda: cleanup.render(
        [Step(source=NAME, what="slot", name=NAME, outcome="left", error=NAME, hint=NAME)], [NAME]
    ),
    "maintain": lambda: maintain.render([{"target": NAME, "error": NAME, "files": None}]),
}  # fmt: skip


@pytest.mark.parametrize("verb", RENDERED)
def test_a_verb_shows_it(verb: str) -> None:
    text = RENDERED[verb]()
    assert is_harmless(text)
    assert r"stops\x1b[2J\u009b2J\u202eslevart" in text


def test_json_on_a_terminal_shows_it_and_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    cli._print_json({NAME: [NAME]})
    written = capsys.readouterr().out
    assert is_harmless(written)
    assert json.loads(written) == {NAME: [NAME]}


def test_an_error_at_the_end_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli._fail(ERROR)
    assert is_harmless(capsys.readouterr().err)
