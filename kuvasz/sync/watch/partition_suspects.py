"""What a look at partitions found and another look, or the stream, may still explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.source.catalog.look import wal_end
from kuvasz.source.catalog.partitions import Partition
from kuvasz.sync.context.current_reader import CurrentReader
from kuvasz.sync.rules.partition_memory import KnownPartitions, SeenPartition


class PartitionSuspects:
    """The partitions of one source that a look found and nothing has explained yet.

    Args:
        current: Says up to where the stream has been heard out.
    """

    def __init__(self, current: CurrentReader) -> None:
        self._current = current
        # By `SourceTableSpec.key`.
        self._missing: dict[str, set[int]] = {}  #: partitions that the stream told of and the last look did not show
        self._emptied: dict[str, tuple[set[tuple[int, int]], int]] = {}  #: emptied partitions, and where that was

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
        """Whether the stream may yet say that the table itself was truncated; it is looked at again then."""
        suspected, suspected_at = self._emptied.get(spec.key, (set(), 0))
        if not emptied <= suspected:
            self._emptied[spec.key] = emptied, wal_end(connection)
            return True
        if self._current.heard_lsn < suspected_at:
            return True
        self._emptied.pop(spec.key, None)
        return False

    def clear(self) -> None:
        """Suspect nobody of what the source's past had: its LSNs may lie far behind the end of the WAL now."""
        self._missing.clear()
        self._emptied.clear()


__all__ = ["PartitionSuspects"]
