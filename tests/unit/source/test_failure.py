from __future__ import annotations

import psycopg
import pytest

from kuvasz.errors import SlotLost, SourceError, SourceLocked, SourceRefused
from kuvasz.source import failure


@pytest.mark.parametrize(
    ("state", "message", "kind", "hint"),
    [
        (
            "55000",
            'ERROR: logical decoding requires "wal_level" >= "logical"',
            SourceRefused,
            "wal_level = 'logical'",
        ),
        ("53400", "ERROR: all replication slots are in use", SourceRefused, "max_replication_slots"),
        (
            "42501",
            "ERROR: permission denied to create replication slot",
            SourceRefused,
            'ALTER ROLE "r" REPLICATION',
        ),
        (None, "FATAL: must be superuser or replication role to start walsender", SourceRefused, "REPLICATION"),
        ("42501", "ERROR: permission denied for table t", SourceRefused, "a privilege is missing"),
        ("55000", 'ERROR: can no longer get changes from replication slot "s"', SlotLost, "copy the source again"),
        ("55000", 'ERROR: can no longer access replication slot "s"', SlotLost, "copy the source again"),
        ("42704", 'ERROR: replication slot "s" does not exist', SlotLost, "copy the source again"),
        ("55006", 'ERROR: replication slot "s" is active for PID 7', SourceError, "other session"),
        ("XX000", "ERROR: unexpected duplicate for tablespace 0, relfilenumber 7", SourceError, "drop the slot"),
        (
            "25006",
            "ERROR: cannot execute CREATE PUBLICATION, read-only",
            SourceError,
            "read_only = 'off'",
        ),
        ("55P03", "ERROR: canceling statement due to lock timeout", SourceLocked, "lock"),
        ("57P01", "FATAL: terminating connection due to administrator command", SourceError, "tried again"),
        (None, 'FATAL:  password authentication failed for user "u"', SourceRefused, "pg_hba.conf"),
        (None, 'FATAL:  database "nix" does not exist', SourceRefused, "database's name"),
        (None, "FATAL: unsupported startup parameter: options", SourceError, "pooler"),
        (None, "FATAL: number of requested standby connections exceeds max_wal_senders", SourceError, "max_wal"),
        (None, "connection to server at 127.0.0.1, port 1 failed: Connection refused", SourceError, "host and port"),
        (None, "failed to resolve host 'nix': [Errno -2] Name or service not known", SourceError, "name service"),
        (None, "connection timeout expired", SourceError, "firewalls"),
        (None, "server does not support SSL, but SSL was required", SourceError, "ssl = on"),
        (None, "SSL error: certificate verify failed", SourceError, "sslrootcert"),
        (None, "server closed the connection unexpectedly", SourceError, "tried again"),
    ],
)
def test_what_an_answer_means(state, message, kind, hint):
    error = failure.of(state, message, place="u@h:1/d", doing="connect", role='"r"')
    assert type(error) is kind
    assert error.message.startswith("u@h:1/d: cannot connect: ")
    assert hint in error.hint


@pytest.mark.parametrize(
    ("state", "function", "kind"),
    [
        ("42704", "ReplicationSlotAcquire", SlotLost),
        ("42704", "transformColumnDef", SourceError),
        ("53400", "ReplicationSlotCreate", SourceRefused),
        ("53400", "InitWalSenderSlot", SourceError),
        ("42501", "CheckSlotPermissions", SourceRefused),
        ("55000", "ReplicationSlotAcquire", SourceError),  # of which state it says several things
    ],
)
def test_the_function_that_says_it_is_known_in_any_language(state, function, kind):
    assert type(failure.of(state, "Replikations-Slot", place="p", doing="d", function=function)) is kind


def test_the_sql_that_the_caller_knows_replaces_the_hint_of_a_refusal_only():
    refused = failure.of("42501", "denied", place="p", doing="d", mend="GRANT …;")
    passing = failure.of("57P01", "gone", place="p", doing="d", mend="GRANT …;")
    assert refused.hint == "GRANT …;"
    assert passing.hint != "GRANT …;"


def test_a_message_is_one_line():
    assert "\n" not in failure.of(None, "a\n  b", place="p", doing="d").message


def test_a_block_is_translated_and_chained():
    with pytest.raises(SourceRefused, match="cannot read: denied") as caught, failure.translated("p", "read"):
        raise psycopg.errors.InsufficientPrivilege("denied")
    assert isinstance(caught.value.__cause__, psycopg.Error)


@pytest.mark.parametrize("error", [KeyError("relkind"), ValueError("not a number"), IndexError("no row")])
def test_an_answer_that_nobody_thought_of_is_the_error_of_who_gave_it(error: Exception):
    told = f"source eu: {type(error).__name__}: .+"
    with pytest.raises(SourceError, match=told) as caught, failure.contained("source eu"):
        raise error
    assert "report it" in str(caught.value.hint)
    with pytest.raises(SourceLocked, match="as it is"), failure.contained("source eu"):
        raise SourceLocked("as it is")
    with pytest.raises(KeyboardInterrupt), failure.contained("source eu"):
        raise KeyboardInterrupt
