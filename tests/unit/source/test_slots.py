from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from kuvasz.config import sources
from kuvasz.config.secrets import SecretUrl
from kuvasz.config.sources import Source
from kuvasz.errors import SourceError, SourceRefused
from kuvasz.source import conninfo, slots
from kuvasz.source.slots import Blocker, SlotState
from tests.support.maps import loaded


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


FACTS = {
    "plugin": "pgoutput", "database": "shop", "temporary": False, "active_pid": None, "confirmed_flush_lsn": "0/10",
    "restart_lsn": "0/8", "wal_status": "reserved", "safe_wal_size": None,
}  # fmt: skip


@pytest.mark.parametrize("field", ["plugin", "database", "wal_status", "invalidation_reason", "inactive_since"])
def test_a_text_of_a_slot_that_no_server_has_is_refused(field):
    """Whoever looks at the status of all sources would be shown it."""
    assert slots.state_of("kuvasz_eu", FACTS | {field: "x" * 1024})
    with pytest.raises(SourceError, match=f"slot kuvasz_eu: its {field} has 1,025 characters"):
        slots.state_of("kuvasz_eu", FACTS | {field: "x" * 1025})


def test_a_session_that_is_waited_for_is_named_as_far_as_names_go():
    (found,) = slots._found([(7, "r" * 9999, "a" * 9999, "d" * 9999, 1.0, None)])
    assert len(found.describe()) < 2200


URL = "postgresql://kuvasz:pw@db1,db2:5433/shop?sslmode=require&password=other&application_name=mine"
ROLE = SecretUrl("postgresql://slots:geheim@")


def source(folder: Path, role: str = "") -> Source:
    url = f"{{url: '{URL.replace('&password=other', '')}'{role and f', replication_url: {role!r}'}}}"
    (found,) = sources.resolve(loaded(folder, f"databases: [{{database: s, urls: [{url}], tables: {{t: }}}}]").config)
    return found


def test_without_another_role_the_url_is_what_it_was(tmp_path: Path) -> None:
    assert slots.laid_over(URL, None) is URL
    with slots.slot_session(source(tmp_path), reading := object()) as given:  # type: ignore[arg-type]
        assert given is reading


def test_another_role_asks_the_same_server_by_its_own_password() -> None:
    assert conninfo_to_dict(slots.laid_over(URL, ROLE)) == {
        "user": "slots", "password": "geheim", "host": "db1,db2", "port": ",5433", "dbname": "shop",
        "sslmode": "require", "application_name": "mine",
    }  # fmt: skip
    without = slots.laid_over(URL, SecretUrl("postgresql://slots@"))
    assert "password" not in conninfo_to_dict(without), "whose password it was it is not sent for"


def test_its_session_is_at_the_server_that_was_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def connect(url: str, _: str) -> Any:
        asked.append(url)
        return contextlib.closing(SimpleNamespace(close=lambda: asked.append("closed"))).thing

    monkeypatch.setattr(conninfo, "connect", connect)
    reading: Any = SimpleNamespace(pgconn=SimpleNamespace(host=b"db2", hostaddr=b"192.0.2.2", port=b"5434"))
    with slots.slot_session(source(tmp_path, "postgresql://slots:geheim@"), reading) as given:
        assert given is not reading
    where = conninfo_to_dict(asked[0])
    assert (where["user"], where["host"], where["hostaddr"], where["port"]) == ("slots", "db2", "192.0.2.2", "5434")
    assert asked[1] == "closed"
