"""The schema of a line: lines are as it says, and what is not is found."""

from __future__ import annotations

import json
import logging

import jsonschema  # type: ignore[import-untyped]
import pytest

from kuvasz import log
from kuvasz.events import Event, EventLog
from kuvasz.log.schema import schema
from tests.support import log_schema


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
def test_a_line_of_each_event_is_as_the_schema_says(event: Event, capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("json", [], level="debug")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        EventLog("kuvasz.some.part").tell(event, source="eu\n", rows=3, lag_s=0.5, tables=["a"], lsns={"eu": "0/1"})
    (line,) = capsys.readouterr().err.splitlines()
    assert log_schema.violations([json.loads(line)]) == []


@pytest.mark.parametrize(
    "wrong", [{"rows": "3"}, {"unheard_of": 1}, {"event": "unheard_of"}, {"level": "loud"}, {"at": None}],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_what_is_otherwise_is_found(wrong: dict[str, object]) -> None:
    right = {"at": "2026-01-01T00:00:00.000000+00:00", "level": "info", "message": "table copied", "event": "copied"}
    assert log_schema.violations([right]) == []
    assert len(log_schema.violations([right | wrong])) == 1


def test_the_file_is_what_the_code_says() -> None:
    assert log_schema.FILE.read_text("utf-8") == log_schema.text(), "python -m tests.support.log_schema"
    jsonschema.Draft202012Validator.check_schema(schema())


def teardown_module() -> None:
    logging.getLogger("kuvasz").handlers.clear()
