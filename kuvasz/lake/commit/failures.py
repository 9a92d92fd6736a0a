"""Whose a failure is: that of the source whose rows are wrong, or that of a table."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kuvasz.errors import InternalError, KuvaszError, LakeError, VersionLost, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.commits import may_be_there
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.ports import Failure, Receipt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from kuvasz.lake.commit.written import WrittenTable
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.model import SourcePosition

_log = EventLog(__name__)

#: Characters of an error that nobody thought of, as it is told.
_MOST_TOLD = 200


def told(refused: Mapping[str, KuvaszError], receipt: Receipt) -> tuple[Receipt | Failure, ...]:
    """Return what came of a commit: the failures of sources that are left out, and the receipt of the others.

    Args:
        refused: The sources that are left out, and why.
        receipt: The receipt of the commit; left out as well where there were no others.
    """
    failures = [Failure(target=receipt.target, source=source, error=error) for source, error in refused.items()]
    is_empty = not (receipt.positions or receipt.rows)
    return tuple(failures) if failures and is_empty else (*failures, receipt)


def came_of(
    written: WrittenTable,
    positions: Mapping[str, SourcePosition],
    snapshot_id: int | None,
    seconds: float,
    rejected: Mapping[str, int] = MappingProxyType({}),
    *,
    is_first: bool = True,
) -> tuple[Receipt | Failure, ...]:
    """Return what came of a commit that is there: a receipt, and a failure of each source that is left out.

    Args:
        written: What was committed of a table.
        positions: The positions that came with it.
        snapshot_id: The snapshot; None if no row changed.
        seconds: How long the commit took.
        rejected: Source -> rows that were left out.
        is_first: Whether no other mini-transaction of the same commit came before.
    """
    receipt = Receipt(
        target=written.work.target, positions=positions, rows=written.cut.rows, snapshot_id=snapshot_id,
        is_first=is_first, rows_of=written.cut.rows_of, bytes_of=written.cut.bytes_of,
        operations_of=written.operations(), commit_us=written.cut.commit_us, seconds=seconds, rejected=rejected,
    )  # fmt: skip
    return told(written.refused, receipt)


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


def stop(
    table: LakeTable, written: Sequence[WrittenTable], changeset: Changeset, error: KuvaszError
) -> tuple[Failure, ...]:
    """Stop a table, whose lock is held, in the middle of a commit: what it wrote is undone, unless it may be there.

    Args:
        table: The table.
        written: What was to be committed.
        changeset: As far as that was worked out.
        error: Why.
    """
    failures = failed(table.name, error, table.positions.keys())
    table.era = WriteEra(accepted={}, error=failures[-1].error)
    changeset.is_outcome_unknown = may_be_there(changeset, error)
    for one in written:
        one.abandon_to(changeset)
    table.forget(changeset)
    return failures


def drop(table: LakeTable, written: Sequence[WrittenTable]) -> None:
    """Remove what was written of a table that failed before."""
    changeset = Changeset()
    for one in written:
        one.abandon_to(changeset)
    table.commits.discard(changeset)


def unkept(table: LakeTable, state: Path, error: OSError) -> LakeError:
    """Return the error of an index that cannot be kept.

    It leaves the index as it was, but the chunk was resolved in part: the table begins again behind it.
    """
    message = f"{place_of(table=table.name)}: its index below {state} cannot be kept: {error}"
    return LakeError(message, hint="make room; it is tried again")


def bug(table: LakeTable, error: Exception, source: str = "") -> InternalError:
    """Tell, and return, the error of something that nobody thought of: the table stops, not the process.

    Args:
        table: The table.
        error: Being handled.
        source: Whose rows it is about; empty: those of all.
    """
    of = {"source": source} if source else {}
    _log.tell(Event.BUG_IN_COMMIT, table=table.name, **of)
    return InternalError(f"{place_of(source, table.name)}: {repr(error)[:_MOST_TOLD]}")


__all__ = ["bug", "came_of", "drop", "failed", "stop", "told", "unkept"]
