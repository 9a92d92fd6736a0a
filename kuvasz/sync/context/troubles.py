"""What keeps tables of one source from following its stream: shown, told once, and looked at again."""

from __future__ import annotations

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import (
    ColumnsUnclear,
    CopyNeeded,
    KuvaszError,
    LostTrack,
    RowsUnlogged,
    RowTooLarge,
    SchemaAwaited,
    SchemaHeld,
    TableError,
    TableStuck,
)
from kuvasz.events import Event, EventLog
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.context.requests import Requests
from kuvasz.sync.context.source_tables import SourceTables

_log = EventLog(__name__)


class Troubles:
    """What the tables of one source are in. From any thread.

    Args:
        source_tables: The source's tables.
        requests: Which of them are looked at anew.
        approvals: What a person agrees to.
    """

    def __init__(self, source_tables: SourceTables, requests: Requests, approvals: Approvals) -> None:
        self._source_tables = source_tables
        self._requests = requests
        self._approvals = approvals
        self._told: dict[str, str] = {}  #: errors that were logged: the same again is no news

    def fail(self, spec: SourceTableSpec, error: KuvaszError) -> None:
        """Put a table into error, or have it wait for a person; the same error again is not logged."""
        told = self._told.get(spec.key)
        self._told[spec.key] = str(error)
        self._source_tables.set(spec, State.PAUSED if isinstance(error, SchemaHeld) else State.ERROR, error)
        if told != str(error):
            _log.tell(
                Event.TABLE_FAILED, source=self._source_tables.source.name, table=spec.identifier, error=str(error)
            )
        if self._approvals.give_as_answered(spec.key, error):
            self._requests.send(spec.key)

    def mended(self, spec: SourceTableSpec) -> None:
        """Forget a table's error: should it come again, that is news."""
        self._told.pop(spec.key, None)

    def refuse(self, spec: SourceTableSpec, error: KuvaszError) -> None:
        """Put a table into error that is not even taken up, and look again later: it may be mended without a word."""
        self.fail(spec, error)
        if isinstance(error, SchemaAwaited):
            self._requests.mended(spec.key)  # others may agree at any time
        if not isinstance(error, SchemaHeld) and not self._source_tables.is_paused(spec):
            self._requests.send_later(spec)

    def stop(self, spec: SourceTableSpec, error: TableError | TableStuck) -> None:
        """Take a table out of the stream because of what happened to it at the source."""
        # Hold first: what comes from now on is not applied, and must come again.
        self._source_tables.hold(spec)
        if isinstance(error, CopyNeeded):
            self._source_tables.resync(spec, is_due=True)
            self._source_tables.set(spec, State.NEW)
            self._source_tables.note(spec, why_copy=f"its rows are copied again: {error.message}")
            _log.tell(
                Event.COPIED_AGAIN,
                source=self._source_tables.source.name,
                table=spec.identifier,
                reason=error.message,
            )
        else:
            if isinstance(error, RowsUnlogged):
                self.miss_rows(spec)
            self.fail(spec, error)
        if not isinstance(error, (SchemaHeld, ColumnsUnclear, LostTrack, RowTooLarge)):
            self._requests.send(spec.key)

    def interrupt(self, spec: SourceTableSpec) -> None:
        """Have a table looked at anew that was not published all the time, or is gone."""
        self._source_tables.hold(spec)
        self._source_tables.set(spec, State.NEW)
        self._requests.send(spec.key)

    def miss_rows(self, spec: SourceTableSpec) -> None:
        """Note that a table's rows in the lake lack something that no stream will bring, if it has any there.

        They may lack it from the last look at the table's file on: changes that came behind have moved its position.
        """
        source_tables = self._source_tables
        if source_tables.position(spec) is None:
            return
        source_tables.gap_starts.note(Evidence.FILE, spec)
        if not source_tables.look(spec).is_resync_due:
            source_tables.resync(spec, is_due=True, is_repair=True)

    def miss_changes(self, spec: SourceTableSpec, commit_lsn: int) -> None:
        """Have a table come over changes of the stream that it cannot get, unless it has what was committed by then.

        A table that is copied meanwhile has no position, or one that a repair will move: the stream is heard again
        from there on when the copy has ended.
        """
        position = self._source_tables.position(spec)
        if position is None or commit_lsn < position.lsn or self._source_tables.look(spec).is_resync_due:
            return
        _log.tell(Event.GAP_FOUND, source=self._source_tables.source.name, table=spec.identifier)
        self.miss_rows(spec)
        if self._source_tables.is_streaming(spec):
            self.interrupt(spec)


__all__ = ["Troubles"]
