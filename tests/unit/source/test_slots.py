from __future__ import annotations

import pytest

from kuvasz.errors import SourceRefused
from kuvasz.source import slots
from kuvasz.source.slots import Blocker, SlotState


@pytest.mark.parametrize(
    ("version", "options", "command"),
    [
        (140010, {}, 'CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput EXPORT_SNAPSHOT'),
        (150000, {}, "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export')"),
        (
            160000, {"temporary": True},
            "CREATE_REPLICATION_SLOT \"s\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')",
        ),
        (
            170000, {"failover": True},
            "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)",
        ),
    ],
)  # fmt: skip
def test_the_command_speaks_the_servers_version(version, options, command):
    assert slots._command("s", version, **{"temporary": False, "failover": False, **options}) == command


def test_no_failover_slot_before_version_17():
    with pytest.raises(SourceRefused, match="the server has version 16"):
        slots._command("s", 160000, temporary=False, failover=True)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, ""),
        ({"wal_status": "unreserved"}, ""),
        ({"wal_status": "lost"}, "the server removed WAL that it needed (max_slot_wal_keep_size)"),
        ({"wal_status": "lost", "invalidation_reason": "idle_timeout"}, "it was invalidated: idle_timeout"),
        ({"is_conflicting": True}, "it conflicted with recovery"),
    ],
)
def test_why_lost(facts, why):
    given = {"plugin": "pgoutput", "database": "d", "is_temporary": False, "active_pid": None, "restart_lsn": 1,
             "confirmed_flush_lsn": 1, "wal_status": "reserved", "safe_wal_bytes": None,
             "retained_bytes": 0}  # fmt: skip
    assert SlotState(name="s", **{**given, **facts}).why_lost == why


def test_a_blocker_in_words():
    assert Blocker(pid=0).describe() == "a prepared transaction"
    assert Blocker(pid=7).describe() == "pid 7 (?, ?)"
    assert (
        Blocker(pid=7, role="a", application="b", transaction_age_s=3.4).describe() == "pid 7 (a, b, running for 3 s)"
    )
