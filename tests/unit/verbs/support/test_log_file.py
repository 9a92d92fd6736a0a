"""The end of a log: what is known to quote no row."""

from __future__ import annotations

import json
from pathlib import Path

from kuvasz.events import Event
from kuvasz.verbs.support import log_file
from kuvasz.verbs.support.log_file import shown

LEFT = "(1 line left out: not known to be free of rows' values)"


def test_lines_for_people_are_kept_without_errors_that_may_quote_a_row() -> None:
    lines = [
        "12:00:00 info    table copied table=shop.items rows=3",
        "12:00:01 error   a table stops table=shop.items",
        "    column body: 'a value'",
        "12:00:02 error   a source stops source=shop_eu",
        "    no connection",
        "    hint: mend it",
        "12:00:03 warning spark says line=a value",
        "a value",
    ]
    assert list(shown(lines)) == [
        lines[0], lines[1], LEFT, *lines[3:6], "12:00:03 warning spark says", LEFT,
    ]  # fmt: skip


def test_what_keeps_a_log_may_write_in_front() -> None:
    front = "Nov 25 21:00:00 host kuvasz[12]: "
    lines = [f"{front}12:00:01 info    table copied rows=3", f"{front}    a value", f"{front}a value"]
    assert list(shown(lines)) == [lines[0], LEFT.replace("1 line", "2 lines")]


def test_lines_for_programs_are_kept_without_errors_that_may_quote_a_row() -> None:
    failed = {"level": "error", "message": Event.TABLE_FAILED.message, "event": "table_failed", "table": "a.b"}
    away = {"level": "warning", "message": Event.SOURCE_FAILED.message, "event": "source_failed", "error": "away"}
    trace = (
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    x = 'a value'\nValueError: a value"
    )
    bug = {"message": Event.BUG_IN_WORKER.message, "event": "bug", "traceback": trace}
    said = {"message": Event.SPARK_SAID.message, "event": "spark_said", "line": "a value"}
    given = [{**failed, "error": "a value"}, away, bug, said, {"message": "of another", "x": "a value"}]
    kept = [json.loads(line) if line.startswith("{") else line for line in shown(map(json.dumps, given))]
    places = trace.splitlines()[:2]
    assert kept == [
        failed,
        away,
        {**bug, "traceback": places},
        {"message": said["message"], "event": "spark_said"},
        LEFT,
    ]


def test_the_places_of_tracebacks_are_kept_and_nothing_else_of_them() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/x/y.py", line 12, in <module>',
        "    call('a value')",
        "ValueError: a value",
        "\tat org.apache.spark.sql.Dataset$.of(Dataset.scala:80)",
        "error: column x: a value",
    ]
    assert list(shown(lines)) == [lines[0], lines[1], LEFT.replace("1 line", "2 lines"), lines[4], LEFT]


def test_of_a_long_log_the_end_is_taken(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "log"
    file.write_text("".join(f"12:00:00 info    table copied rows={number}\n" for number in range(100)))
    monkeypatch.setattr(log_file, "_MOST_LINES", 2)
    assert log_file.gather(file).files["log.txt"].splitlines() == [
        "12:00:00 info    table copied rows=98", "12:00:00 info    table copied rows=99"]  # fmt: skip
