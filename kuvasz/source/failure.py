"""What a failure at a source means: the driver's errors become ours at this door.

The rules go by SQLSTATE (manual, appendix A); where one state has several meanings also by the name of the server's
function; and where libpq gives neither (a failed connection carries only text) by a part of the English message,
though a server may speak any language (`lc_messages`). What no rule knows is a `SourceError`, to be tried again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import TYPE_CHECKING

import psycopg

from kuvasz.errors import KuvaszError, SlotLost, SourceError, SourceLocked, SourceRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What makes a server ready for logical decoding; both need a restart.
WAL_LEVEL_SQL = "ALTER SYSTEM SET wal_level = 'logical';"
MORE_SLOTS_SQL = "ALTER SYSTEM SET max_replication_slots = {slots};"
MORE_SENDERS_SQL = "ALTER SYSTEM SET max_wal_senders = {senders};"

_LOCK_HINT = "another session holds a lock on the table (see pg_locks); it is tried again"
_CONFLICT_HINT = (
    "at the standby: ALTER SYSTEM SET hot_standby_feedback = 'on'; SELECT pg_reload_conf(); or a longer"
    " max_standby_streaming_delay; it is tried again"
)
_READ_ONLY_HINT = (
    "its sessions may not write: give the url of the primary, or: ALTER ROLE {role} SET"
    " default_transaction_read_only = 'off'; it is tried again"
)
_RESTART_HINT = "it is tried again; see the server's log if this goes on"
_UNFORESEEN_HINT = (
    "report it: this is a mistake in kuvasz, or something else than a PostgreSQL server answers; the others go on"
)
_START_OVER = "copy the source again (`on_slot_lost: resync`, or kuvasz resync with its --sid)"
_NAME_HINT = (
    "a name there has bytes that are no UTF-8, which a database of encoding SQL_ASCII lets pass: give it another name"
)
_UNDECODABLE_HINT = (
    "PostgreSQL cannot decode its own write-ahead log there: update the server; if this goes on, drop the slot"
    " (SELECT pg_drop_replication_slot(...)), and on_slot_lost says how the source goes on"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    kind: type[SourceError]
    hint: str
    states: frozenset[str] = frozenset()
    text: re.Pattern[str] | None = None
    function: re.Pattern[str] | None = None  #: of the server, which says so whatever the text is

    def fits(self, state: str | None, message: str, function: str) -> bool:
        if self.states and state not in self.states:
            return False
        if self.text is None and self.function is None:
            return True
        is_its = self.function is not None and self.function.fullmatch(function) is not None
        return is_its or (self.text is not None and self.text.search(message) is not None)


def _rule(
    kind: type[SourceError], hint: str, *states: str, text: str | None = None, function: str | None = None
) -> _Rule:
    return _Rule(
        kind=kind, hint=hint, states=frozenset(states),
        text=None if text is None else re.compile(text, re.IGNORECASE),
        function=None if function is None else re.compile(function),
    )  # fmt: skip


#: The first rule that fits decides.
_RULES = (
    _rule(SourceRefused, f"{WAL_LEVEL_SQL} then restart the server", text="requires wal_level|wal_level.*logical"),
    _rule(SlotLost, f"the missed changes are gone: {_START_OVER}",
          text=r"can no longer (get changes|access) (from )?replication slot|slot .* (was|has been) invalidated"),
    _rule(SlotLost, f"the slot was dropped: {_START_OVER}", "42704", function=r"ReplicationSlot\w*"),
    _rule(SlotLost, f"the slot was dropped: {_START_OVER}", text=r'replication slot "[^"]*" does not exist'),
    _rule(SourceRefused, "the role needs: ALTER ROLE {role} REPLICATION;", "42501",
          function="CheckSlotPermissions|check_permissions"),
    _rule(SourceRefused, "the role needs: ALTER ROLE {role} REPLICATION;",
          text="permission denied to (use replication slots|start WAL sender|create replication slot)"
               "|replication role|REPLICATION attribute"),
    _rule(SourceRefused, "raise it, then restart the server: " + MORE_SLOTS_SQL.format(slots="…"), "53400",
          text="all replication slots are in use", function=r"ReplicationSlot\w*"),
    _rule(SourceError, "wait for other replicas to go, or: " + MORE_SENDERS_SQL.format(senders="…"),
          text="max_wal_senders"),
    _rule(SourceError, "a pooler stands between: give the url of the server itself (transaction pooling cannot"
          " carry replication or exported snapshots)", text="unsupported startup parameter|pgbouncer"),
    _rule(SourceError, "nothing listens there: check host and port of the url, and that the server runs",
          text="connection refused"),
    _rule(SourceError, "check the host in the url, and the name service of this machine",
          text="could not translate host name|name or service not known|failed to resolve host"
               "|no address associated|temporary failure in name resolution"),
    _rule(SourceError, "nothing answers there: check host and port of the url, firewalls, and `listen_addresses`",
          text="connection timeout|timeout expired|timed out|no route to host|network is unreachable"),
    _rule(SourceError, "the server has no TLS, and the url's sslmode asks for it: set ssl = on at the server",
          text="server does not support SSL"),
    _rule(SourceError, "the server's certificate is not the one that sslrootcert and the host's name promise",
          text="certificate verify failed|does not match host name|root certificate"),
    _rule(SourceRefused, "check user, password and the server's pg_hba.conf", "28P01", "28000"),
    _rule(SourceRefused, "check user, password and the server's pg_hba.conf",
          text=r"authentication failed|no pg_hba\.conf entry|no password supplied"
               r"|role \"[^\"]*\" (does not exist|is not permitted)"),
    _rule(SourceRefused, "check the database's name in the url", "3D000"),
    _rule(SourceRefused, "check the database's name in the url", text=r'FATAL:\s+database "[^"]*" does not exist'),
    _rule(SourceRefused, "a privilege is missing", "42501"),
    _rule(SourceError, "the other session must end first; it is tried again", "55006"),
    _rule(SourceError, _UNDECODABLE_HINT, text="unexpected duplicate for tablespace|could not map filenumber"),
    _rule(SourceError, _READ_ONLY_HINT, "25006"),
    _rule(SourceLocked, _LOCK_HINT, "55P03"),
    _rule(SourceError, _CONFLICT_HINT, text="due to conflict with recovery"),
    _rule(SourceError, _NAME_HINT, "22021"),
    _rule(SourceError, _RESTART_HINT, "57P01", "57P02", "57P03"),
)  # fmt: skip


def of(
    state: str | None,
    message: str,
    *,
    place: str,
    doing: str,
    mend: str | None = None,
    role: str = "…",
    function: str | None = None,
) -> SourceError:
    """Return the error that a server's answer means.

    Args:
        state: Its SQLSTATE; None if libpq gave none.
        message: Its text.
        place: The source, without secrets: `kuvasz.source.conninfo.place`.
        doing: What was tried, as in "cannot {doing}".
        mend: The SQL that lifts a refusal, where the caller knows it.
        role: The connection's role, for the hints that name it.
        function: The server's function that says so, if it tells.
    """
    text = " ".join(message.split())
    told = f"{place}: cannot {doing}: {text}"
    for rule in _RULES:
        if rule.fits(state, text, function or ""):
            hint = mend if mend is not None and rule.kind is SourceRefused else rule.hint.format(role=role)
            return rule.kind(told, hint=hint)
    return SourceError(told, hint=_RESTART_HINT)


@contextlib.contextmanager
def contained(place: str) -> Iterator[None]:
    """Have whatever happens in a block be the error of one source: its answers may be any, and others are asked.

    Args:
        place: The source, as errors name it.
    """
    try:
        yield
    except KuvaszError:
        raise
    except Exception as error:
        raise SourceError(f"{place}: {type(error).__name__}: {str(error)[:200]}", hint=_UNFORESEEN_HINT) from error


@contextlib.contextmanager
def translated(place: str, doing: str, *, mend: str | None = None, role: str = "…") -> Iterator[None]:
    """Turn psycopg's errors of a block into ours."""
    try:
        yield
    except psycopg.Error as error:
        function = error.diag.source_function
        raise of(
            error.sqlstate, str(error), place=place, doing=doing, mend=mend, role=role, function=function
        ) from error
    except UnicodeDecodeError as error:
        # A server checks that itself before it sends it; what stands between may not.
        text = error.object.decode(errors="backslashreplace")[:100]
        message = f"{place}: cannot {doing}: the server sent what is no UTF-8: {text!r}"
        raise SourceError(message, hint=_NAME_HINT) from error
