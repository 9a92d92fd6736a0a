"""Keeps what nobody thought of in the table it happened to."""

from __future__ import annotations

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, TableError, place_of, retry_of
from kuvasz.events import Event, EventLog

_log = EventLog(__name__)


def unforeseen(source: str, spec: SourceTableSpec, error: Exception, *, is_ending: bool) -> TableError:
    """Return the error of a table that cannot be looked at for a mistake of our own, which the log tells in full.

    Args:
        source: Its name.
        spec: What the map says of the table.
        error: Being handled.
        is_ending: Whether the source ends: threads are not cut off, and the lake may have been closed under them.

    Raises:
        LakeError: It ends, and that explains it.
    """
    place = place_of(source, spec.table)
    if is_ending:
        message = f"{place}: kuvasz ends while a table is looked at: {error}"
        raise LakeError(message, hint="nothing is lost: the next start looks at it again") from error
    _log.tell(Event.TABLE_UNFORESEEN, source=source, table=spec.identifier, error=str(error))
    message = f"{place}: kuvasz cannot make out its columns: {type(error).__name__}: {str(error)[:200]}"
    hint = f"this is a mistake in kuvasz: report it with the log; {retry_of(spec.identifier)} tries again"
    return TableError(message, hint=hint)


__all__ = ["unforeseen"]
