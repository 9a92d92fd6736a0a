"""Tells once what the tables of one source may lack in the lake, so that nobody has to find out. From any thread."""

from __future__ import annotations

from collections.abc import Mapping

from kuvasz.config.sources import Source
from kuvasz.events import EventLog
from kuvasz.model import TableName
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.context.source_tables import SourceTables
from kuvasz.sync.rules import caveats

_log = EventLog(__name__)


class CaveatLog:
    """The caveats of one source's tables, each told once.

    Args:
        mapped: The source as the map has it.
        source_tables: Its tables.
    """

    def __init__(self, mapped: Source, source_tables: SourceTables) -> None:
        self._mapped = mapped
        self._source_tables = source_tables
        self._told: dict[str, list[caveats.Caveat]] = {}  #: by `SourceTableSpec.key`: at the last look

    def tell(self, found: Mapping[TableName, SourceTable]) -> None:
        """Tell what is news of the tables that a look at the catalog has found."""
        source = self._source_tables.source
        for spec in source.tables:
            if spec.table not in found:
                continue
            # A collapse of the map may take in what is not seen yet.
            now = caveats.of(spec, found[spec.table], [source, self._mapped])
            told = self._told.pop(spec.key, [])
            if now:
                self._told[spec.key] = now
            for caveat in now:
                if caveat not in told:
                    _log.tell(
                        caveat.event, source=self._mapped.name, table=spec.identifier, found=caveat.found,
                        hint=caveat.hint,
                    )  # fmt: skip


__all__ = ["CaveatLog"]
