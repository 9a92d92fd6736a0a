from __future__ import annotations

import logging
import os

import pytest

from kuvasz.lake.java.output import SparkOutput

START = b"WARNING: Using incubator modules: jdk.incubator.vector\n:: loading settings :: url = x\n\tconfs: [x]\n"


def say(output: SparkOutput, text: bytes) -> None:
    """Be a JVM that says something and ends."""
    with output.pipe() as end:
        os.write(end, text)


def test_without_a_log_what_is_news_goes_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("kuvasz"), "handlers", [])
    output = SparkOutput()
    say(output, START + b"downloading https://repo/x.jar ...\n\xff\n")
    assert output.said()[-1] == "\ufffd"
    assert capsys.readouterr() == ("", "downloading https://repo/x.jar ...\n\ufffd\n")


def test_with_a_log_each_line_is_an_event(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("kuvasz"), "handlers", [logging.NullHandler()])
    monkeypatch.setattr(logging.getLogger("kuvasz"), "propagate", True)
    output = SparkOutput()
    output.started()
    say(output, b"12:00:00 spark ERROR TaskSetManager: Task 0 failed\n\tat org.apache.Spark\n\n")
    output.said()
    assert [(record.message, record.__dict__["line"]) for record in caplog.records] == [
        ("spark says", "12:00:00 spark ERROR TaskSetManager: Task 0 failed"),
        ("spark says", "\tat org.apache.Spark"),
    ]


def test_a_jvm_that_runs_already_said_nothing() -> None:
    assert SparkOutput().said() == []
