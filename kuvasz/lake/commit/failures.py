"""Whose a failure is: that of the source whose rows are wrong, or that of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.errors import KuvaszError, LakeError, VersionLost, place_of
from kuvasz.ports import Failure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kuvasz.ports import Receipt


def told(refused: Mapping[str, KuvaszError], receipt: Receipt) -> tuple[Receipt | Failure, ...]:
    """Return what came of a commit: the failures of sources that are left out, and the receipt of the others.

    Args:
        refused: The sources that are left out, and why.
        receipt: The receipt of the commit; left out as well where there were no others.
    """
    failures = [Failure(target=receipt.target, source=source, error=error) for source, error in refused.items()]
    is_empty = not (receipt.positions or receipt.rows)
    return tuple(failures) if failures and is_empty else (*failures, receipt)


def failed(table: str, error: KuvaszError, sources: Collection[str]) -> tuple[Failure, ...]:
    """Return the failures of a table that failed in the middle of a commit; the last one is of all that follow then.

    Rows that lack an earlier version are found out among those of others, which are in the index by then: their
    source has failed, and the others begin again behind what is in the lake.

    Args:
        table: The table's name.
        error: Why.
        sources: The sources that feed the table.
    """
    if not isinstance(error, VersionLost) or not set(sources) - {error.source}:
        return (Failure(target=table, error=error),)
    message = f"{place_of(table=table)}: source {error.source} failed in a commit with others, which is undone"
    again = LakeError(message, hint="kuvasz begins again by itself, without that source")
    return Failure(target=table, source=error.source, error=error), Failure(target=table, error=again)


__all__ = ["failed", "told"]
