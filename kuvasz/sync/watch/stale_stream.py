"""A stream that takes a partition for what it was before it was attached or detached: see `partitions.are_seen`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.look import end_to_send
from kuvasz.source.catalog.partitions import Partition
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules.partition_memory import KnownPartitions
from kuvasz.sync.watch.partition_notes import PartitionNotes


class StaleStream:
    """The streams of one source, as far as partitions that came and went make them stale.

    Args:
        context: The context of the source.
        notes: What the lake remembers.
    """

    def __init__(self, context: SourceContext, notes: PartitionNotes) -> None:
        self._slot = context.source.object_name
        self._notes = notes
        self._is_due = False
        #: by `SourceTableSpec.key`: what hangs otherwise than is known, and where the WAL ended when that was seen
        self._moved: dict[str, tuple[set[str], int]] = {}

    def may_be_stale(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        known: KnownPartitions,
        found: Sequence[Partition],
    ) -> bool:
        """Whether the next connection, too, may take partitions that came or went for what they were before.

        One that begins behind that does not. So the table goes on until all before is confirmed, and is looked at
        again: only a comparison that follows then, and the connection after it, lack nothing.
        """
        if partitions.are_seen(connection):
            return False
        moved = {part.links for part in known.parts} ^ {partition.links for partition in found}
        suspected, suspected_at = self._moved.get(spec.key, (set(), 0))
        if moved != suspected:
            suspected_at = end_to_send(connection)
            self._moved[spec.key] = moved, suspected_at
        if not moved or not suspected_at:
            return False
        if not partitions.is_confirmed(connection, self._slot, suspected_at):
            return True
        self._moved[spec.key] = moved, 0
        self._notes.settled(spec, moved)
        self._is_due = True
        return False

    def take(self) -> bool:
        """Return whether the stream is stale and may go on in another connection; that is asked for once."""
        is_due, self._is_due = self._is_due, False
        return is_due

    def clear(self) -> None:
        """Forget what the source's past had: its LSNs may lie far behind the end of the WAL now."""
        self._moved.clear()
        self._notes.unsettle()


__all__ = ["StaleStream"]
