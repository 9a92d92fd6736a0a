from __future__ import annotations

import psycopg
import pytest

from kuvasz.errors import ConfigError, SourceRefused
from kuvasz.source.check.finding import PreflightReport, Severity


def test_a_finding_that_is_ok_has_no_fix():
    report = PreflightReport("kuvasz_shop", "u@h:1/d")
    report.add("wal_level", "logical", "logical", ok=True, fix="ALTER SYSTEM …")
    report.add("types", "x", "y", ok=False, severity=Severity.ADVICE, fix="cast")
    report.add("wal_level", "replica", "logical", ok=False, fix="ALTER SYSTEM …")
    assert [(one.fix, one.is_blocking) for one in report.findings] == [
        ("", False), ("cast", False), ("ALTER SYSTEM …", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (SourceRefused("no", hint="GRANT"), "GRANT"),
        (psycopg.errors.LockNotAvailable("locked"), "another session holds a lock on the table (see pg_locks)"),
        (ConfigError("odd"), ""),
    ],
)
def test_a_check_that_fails_in_itself_is_a_finding(error, fix):
    report = PreflightReport("kuvasz_shop", "u@h:1/d")

    def fail():
        raise error

    report.run("slot", "free", fail)
    report.run("slot", "free", lambda: report.add("slot", "free", "free", ok=True))
    assert [one.ok for one in report.findings] == [False, True]
    assert report.findings[0].fix == fix


def test_a_check_that_meets_what_nobody_thought_of_is_a_finding_and_the_next_has_its_turn() -> None:
    report = PreflightReport("kuvasz_shop", "u@h:1/d")
    for check in ("tables", "publication"):
        report.run(check, "an answer", lambda: {}["a type that was dropped between two queries"])
    assert [(one.check, one.ok) for one in report.findings] == [("tables", False), ("publication", False)]
    assert "KeyError: 'a type that was dropped" in report.findings[0].value
