"""Keeps what nobody thought of in the table it happened to."""

from __future__ import annotations

import logging

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, TableError

_log = logging.getLogger(__name__)


def unforeseen(source: str, spec: SourceTableSpec, error: Exception, *, is_ending: bool) -> TableError:
    """Return the error of a table that cannot be looked at for a mistake of our own, which the log tells in full.

    Args:
        source: Its name.
        spec: Of the map.
        error: Being handled.
        is_ending: Whether the source ends: threads are not cut off, and the lake may have been closed under them.

    Raises:
        LakeError: It ends, and that explains it.
    """
    place = f"source {source}, table {spec.table}"
    if is_ending:
        message = f"{place}: kuvasz ends while a table is looked at: {error}"
        raise LakeError(message, hint="nothing is lost: the next start looks at it again") from error
    _log.exception("a table cannot be looked at", extra={
        "event": "table_unforeseen", "source": source, "table": spec.identifier, "error": str(error)})  # fmt: skip
    message = f"{place}: kuvasz cannot make out its columns: {type(error).__name__}: {str(error)[:200]}"
    hint = f"this is a mistake in kuvasz: report it with the log; kuvasz retry --table {spec.identifier} tries again"
    return TableError(message, hint=hint)


__all__ = ["unforeseen"]
