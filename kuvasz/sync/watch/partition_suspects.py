"""What a look at partitions found and another look, or the stream, may still explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.source.catalog.look import end_to_send
from kuvasz.source.catalog.partitions import Partition
from kuvasz.sync.context.current_reader import CurrentReader
from kuvasz.sync.rules.partition_memory import KnownPartitions, SeenPartition

#: Looks after which nobody waits any more for commits of what the stream brought: they may be stuck.
_PATIENCE = 6


class PartitionSuspects:
    """The partitions of one source that a look found and nothing has explained yet.

    Args:
        current: Says up to where the stream has been heard out.
        durable: Says before which LSN a table has everything.
    """

    def __init__(self, current: CurrentReader, durable: Callable[[SourceTableSpec], int]) -> None:
        self._current = current
        self._durable = durable
        # By `SourceTableSpec.key`.
        self._missing: dict[str, set[int]] = {}  #: partitions that the stream told of and the last look did not show
        self._emptied: dict[str, tuple[set[tuple[int, int]], int]] = {}  #: emptied partitions, and where that was
        self._heard: dict[str, int] = {}  #: looks since the stream was heard out

    def waits(
        self, spec: SourceTableSpec, known: KnownPartitions, found: Sequence[Partition]
    ) -> tuple[SeenPartition, ...]:
        """Return partitions that the stream told of and the catalog does not show, if it may show them yet.

        The walsender is ahead of other sessions by a moment: what is not there at two looks is gone.
        """
        present = {partition.oid for partition in found}
        missing = {seen.oid for seen in known.seen if seen.oid not in present}
        fresh = missing - self._missing.get(spec.key, set())
        self._missing[spec.key] = missing
        return tuple(seen for seen in known.seen if seen.oid in fresh)

    def may_be_told(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        emptied: set[tuple[int, int]],
    ) -> bool:
        """Whether the stream may yet say that the table itself was truncated; it is looked at again then.

        What it has said is waited for, too, until it is committed: a file that came by a TRUNCATE of the table within
        a savepoint, or whose table was altered behind one, has the table compared all the same, and a history would
        end what that TRUNCATE ended with the time of the comparison.
        """
        suspected, suspected_at = self._emptied.get(spec.key, (set(), 0))
        if not emptied <= suspected:
            self._emptied[spec.key] = emptied, end_to_send(connection)
            self._heard.pop(spec.key, None)
            return True
        if self._current.heard_lsn < suspected_at:
            return True
        if self._durable(spec) < suspected_at:
            self._heard[spec.key] = looks = self._heard.get(spec.key, 0) + 1
            if looks <= _PATIENCE:
                return True
        self._emptied.pop(spec.key, None)
        return False

    def clear(self) -> None:
        """Suspect nobody of what the source's past had: its LSNs may lie far behind the end of the WAL now."""
        self._missing.clear()
        self._emptied.clear()
        self._heard.clear()


__all__ = ["PartitionSuspects"]
