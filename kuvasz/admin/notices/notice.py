"""What a webhook is told, as JSON, and the signature by which it knows who told it. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from kuvasz import __version__
from kuvasz.admin.notices.alarms import HEARD
from kuvasz.config.model import NoticeKind
from kuvasz.events import Event

#: One thing that happened.
Entry: TypeAlias = dict[str, Any]

SIGNATURE: Final = "Kuvasz-Signature"

#: A table or source that does not go on, whatever comes of it.
_STOPS: Final = frozenset({Event.TABLE_FAILED, Event.SOURCE_FAILED, Event.SLOT_LOST, Event.SLOT_LOST_REPAIRED})

_KINDS: Final = {
    Event.SCHEMA_CHANGED: NoticeKind.SCHEMA,
    Event.CUT: NoticeKind.CUT,
    Event.ROWS_REJECTED: NoticeKind.REJECT,
}

#: Of a commit, what the table of commits has and a reader of the table may act on.
_OF_COMMIT: Final = ("snapshot_id", "sequence", "kind", "inserts", "updates", "deletes", "added_rows")


def kind_of(event: Event) -> NoticeKind | None:
    """Return what an event is told as, if it is news to a webhook (`Alarms`); None if nobody is told."""
    is_error = event.level >= logging.ERROR or event in _STOPS or event in HEARD
    return NoticeKind.ERROR if is_error else _KINDS.get(event)


def of_event(kind: NoticeKind, row: Mapping[str, Any]) -> Entry:
    """Return what is told of an event.

    Args:
        kind: What it is told as.
        row: As the table of events has it, without secrets and values of rows.
    """
    return {
        "what": kind.value,
        "at": row["happened_at"].isoformat(timespec="milliseconds"),
        "run": row["run"],
        "number": row["number"],
        "event": row["event"],
        "severity": row["severity"],
        "text": row["text"],
        "source": row["source"],
        "table": row["table_name"],
        "fields": json.loads(row["fields"]),
    }


def of_commit(row: Mapping[str, Any], missed: int) -> Entry:
    """Return what is told of a commit.

    Args:
        row: As the table of commits has it.
        missed: Snapshots before it that were expired before anybody could be told.
    """
    entry = {
        "what": NoticeKind.COMMIT.value,
        "at": row["committed_at"].isoformat(timespec="milliseconds"),
        "table": row["target"],
        **{name: row[name] for name in _OF_COMMIT},
        "positions": dict(row["positions"]),
    }
    return entry | ({"missed": missed} if missed else {})


def body_of(name: str, number: int, entries: Iterable[Entry]) -> bytes:
    """Return the body of a request.

    Args:
        name: What the webhook is called.
        number: The number of the request, which stays while it is not answered.
        entries: What happened.
    """
    told = {"kuvasz": __version__, "webhook": name, "number": number, "entries": list(entries)}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def signature(secret: str, at_s: int, body: bytes) -> str:
    """Return the value of the header `SIGNATURE`: the time, and HMAC-SHA256 of that, a dot and the body."""
    digest = hmac.new(secret.encode(), b"%d." % at_s + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"


__all__ = ["SIGNATURE", "Entry", "body_of", "kind_of", "of_commit", "of_event", "signature"]
