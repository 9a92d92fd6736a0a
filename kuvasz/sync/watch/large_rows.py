"""Stops a table of one source whose row is larger than the map lets it be, or has it rejected: all others go on."""

from __future__ import annotations

from kuvasz import lsn
from kuvasz.config.model import OnBadValue
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import RowTooLarge, place_of, resync_of, retry_of
from kuvasz.model import Relation
from kuvasz.route.row_limit import RowLimit
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.watch.last_looks import LastLooks


class LargeRows:
    """The watch over one source's large rows. From any thread.

    Args:
        context: The context of the source.
        looks: Which table a relation is.
    """

    def __init__(self, context: SourceContext, looks: LastLooks) -> None:
        self._source_tables = context.source_tables
        self._troubles = context.troubles
        self._looks = looks
        self.limit = RowLimit(context.shared.max_row_bytes, self._stop)  #: for the stream, and for what was parked

    def _stop(self, relation: Relation, commit_lsn: int, size: int) -> bool:
        """Put a table into error, unless the lake has the row, its rows are not applied now anyway, or it rejects it.

        Returns:
            Whether it does.
        """
        streaming = [spec for spec in self._looks.specs(relation) if self._source_tables.is_streaming(spec)]
        rejects = [spec for spec in streaming if spec.config.on_bad_value is not OnBadValue.STOP]
        for spec in streaming:
            if spec not in rejects:
                self._stop_one(spec, commit_lsn, size)
        return bool(rejects)

    def _stop_one(self, spec: SourceTableSpec, commit_lsn: int, size: int) -> None:
        position = self._source_tables.position(spec)
        if position is not None and commit_lsn < position.lsn:
            return
        error = RowTooLarge(
            f"{place_of(self._source_tables.source.name, spec.table)}: the transaction at {lsn.render(commit_lsn)}"
            f" has a row of {size:,} bytes, and `pipeline.max_row_bytes` is {self.limit.bytes:,}",
            hint=f"raise it, where there is memory of ten times the row, start kuvasz again, then"
            f" {retry_of(spec.identifier)}; or make the row smaller at the source, then {resync_of(spec.identifier)}",
        )
        self._troubles.stop(spec, error)


__all__ = ["LargeRows"]
