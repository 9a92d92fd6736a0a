"""One lake table at work: what it is, where its rows are, and how far its sources are in it.

How rows get into a commit, and what else a table needs, is done by objects around it, each of which works on one
table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.errors import LakeError, LateCommit, place_of
from kuvasz.events import Event, EventLog
from kuvasz.index import seed as index_seed
from kuvasz.lake.definition.columns import Columns
from kuvasz.lake.definition.definition import Definition
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.format import source_positions as position_properties
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table.commit_yield import CommitYield
from kuvasz.lake.table.commits import Commits
from kuvasz.lake.table.notes import Notes
from kuvasz.lake.table.open_transactions import OpenTransactions
from kuvasz.lake.table.past import Past
from kuvasz.lake.table.recovery import EmptyReader, KeyReader
from kuvasz.lake.table.table_index import TableIndex, TableRows
from kuvasz.lake.table.table_lock import TableLock
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import SourcePosition
from kuvasz.ports import Target
from kuvasz.state.ports import Witness

if TYPE_CHECKING:
    from kuvasz.index.kept import IndexPlace
    from kuvasz.lake.jvm.jvm_calls import CurrentState

_log = EventLog(__name__)

#: Table property that is written to find out whether one can be.
_PROOF_PROPERTY = "kuvasz.proof"


class LakeTable:
    """A table that kuvasz writes. One thread at a time, guarded by `lock`.

    Args:
        table: The Iceberg table.
        target: What the map says of it.
        properties: The properties of the FileIO.
        indexes: Where indexes live.
        expressions: Checks those of the map.
        reader_of: Makes what reads the keys of its data files again; None for who works without the index.
        witness: The witness of the positions; None for who does not write the stream.
    """

    def __init__(
        self,
        table: IcebergTable,
        target: Target,
        properties: Mapping[str, str],
        indexes: IndexPlace,
        expressions: Expressions,
        reader_of: Callable[[Definition], KeyReader] | None = None,
        witness: Witness | None = None,
    ) -> None:
        self.lock = TableLock(target.name)
        self.table = table
        self.definition = definition = Definition(table, target, properties, _secret(indexes.folder))
        self.notes = Notes(table)
        self.positions: dict[str, SourcePosition] = position_properties.parse(table.properties, target.name)
        self.open = OpenTransactions(definition)
        self.index = TableIndex(
            table, definition, self.open, indexes.folder / table.uuid,
            EmptyReader() if reader_of is None else reader_of(definition), indexes.kept(table.uuid),
        )  # fmt: skip
        self.columns = Columns(table, definition, self.index.reset, self.positions, expressions, self.forget_position)
        self.past = Past(target.name, table, self.positions, self.index, witness)
        self.turn = CommitYield(table)
        self.era = WriteEra.begin(self.positions)
        self.commits = Commits(table, definition, self.index, self.positions, self.past, self.lock)

    @property
    def name(self) -> str:
        """Its name in the lake."""
        return self.definition.name

    @property
    def target(self) -> Target:
        """What the map says of it."""
        return self.definition.target

    @property
    def rows(self) -> TableRows:
        """What the rows of a commit are worked out with."""
        return TableRows(definition=self.definition, index=self.index, open=self.open)

    def settle_layout(self) -> None:
        """Take over the layout that the map asks for; files that are there keep their own.

        Raises:
            SchemaError: It names a column that is not there.
        """
        self.definition.settle_layout(self.columns.known.former_names())

    def forget_position(
        self, source: str, *, to_repair: bool = False, is_gone: bool = False, gap_lsn: int | None = None
    ) -> None:
        """Drop a source's position; what was written of it and is not committed yet never will be.

        With `is_gone` its columns are forgotten, too.

        Raises:
            LakeError: The catalog does not answer.
        """
        self.table.look()  # someone may have set it back a moment ago
        self.past.forget(source)
        self.columns.unfit(source)
        self.notes.drop_position(source, to_repair=to_repair, is_gone=is_gone, gap_lsn=gap_lsn)
        if is_gone:
            self.columns.forget(source)
        self.open.abandon(source)
        self.commits.unanswered.discard(source)
        dropped = self.positions.pop(source, None)
        if dropped is not None:
            self.past.give_up(source, dropped)
        self.era.drop(source)

    def close(self) -> None:
        """Save the index and remove what was written and not committed."""
        with self.lock:
            self.open.abandon_all()
            self.index.close()

    def prove(self) -> None:
        """Find out whether catalog and store take anything of this table.

        Raises:
            LakeError: Catalog or store take nothing of it.
        """
        with self.lock, self.lock.doubtful():
            location = self.definition.location
            path = f"{location}/data/kvsz-{uuid.uuid4().hex}-proof"
            try:
                io = file_io(self.definition.io_properties, path)
                with io.new_output(path).create() as stream:
                    stream.write(b"kuvasz")
                io.delete(path)
            except Exception as error:  # each store fails with errors of its own
                message = f"{place_of(table=self.name)}: {location}/data cannot be written: {error}"
                raise LakeError(message, hint="check the permissions there; it is tried again") from error
            self.table.set_properties({_PROOF_PROPERTY: uuid.uuid4().hex})
            if not self.index.is_open:  # else nothing is unknown: a commit that failed lets go of the index
                self.positions.update(position_properties.parse(self.table.properties, self.name))

    def forget(self, changeset: Changeset) -> None:
        """Undo what a failed commit left: in memory, in the index, and in the store."""
        self.commits.discard(changeset)
        self.open.abandon_all()
        self.index.reset()

    # Commits that nobody answered

    def find_unanswered(self) -> None:
        """Take over the positions of copies and repairs that are there though nobody said so.

        Made again, they would take the place of what came with them: where a table that keeps what was goes on with a
        gap, all of its rows.

        Raises:
            TableStuck: The table is being committed to.
            LakeError: The catalog does not answer.
        """
        unanswered = self.commits.unanswered
        if not unanswered:
            return
        with self.lock.asking():
            self.table.refresh()
            found = position_properties.parse(self.table.properties, self.name)
            for source in unanswered & (found.keys() - self.positions.keys()):
                self.positions[source] = found[source]
                self.era.accept({source: found[source].lsn})
                _log.tell(Event.COMMIT_FOUND, table=self.name)
            unanswered.difference_update(self.positions)  # one that is not there may still be on its way
            self.past.note()

    # Commits of others

    def look(self) -> None:
        """Look whether someone set the table back, or dropped it, since its last commit.

        Raises:
            LakeRewound, TableGone: Someone did.
            LakeError: The catalog does not answer.
        """
        with self.lock.asking():
            now = self.table.look()
            if not self.index.is_open or now.snapshot_id != self.index.snapshot_id:
                self.past.check()
            self.past.refuse_all(self.positions)

    def follow(self) -> bool:
        """Look whether someone else committed, and bring files and index up to date if so.

        Raises:
            LakeRewound: Someone set the table back.
        """
        if not self.index.is_open:
            self._look()
            self.past.check()
            self._check_positions()
            self.index.read()
            self.turn.note(self.index.readings)
            return False
        now = self._look()
        self.turn.note(self.index.readings)
        if self.turn.give():
            now = self._look()
        if now.snapshot_id != self.index.snapshot_id:
            self.past.check()
        if now.schema_id != self.definition.schema.schema_id:
            self.columns.follow()
        if now.snapshot_id == self.index.snapshot_id:
            self.index.sequence = now.sequence
            return False
        self._check_positions()
        self.turn.note(self.index.readings + 1)  # this is read now
        self.turn.give()
        _log.tell(Event.FOREIGN_COMMIT, table=self.name)
        self.index.catch_up()
        return True

    def _look(self) -> CurrentState:
        """Look at the catalog again: someone may have given the table another format, which has other deletes."""
        now = self.table.look()
        self.definition.format_version = now.format_version
        return now

    @property
    def ahead(self) -> dict[str, SourcePosition]:
        """Positions of sources that are further in the table, as it was at its last look, than we brought them."""
        found = position_properties.parse(self.table.properties, self.name)
        return {s: found[s] for s, known in self.positions.items() if s in found and found[s].lsn > known.lsn}

    def _check_positions(self) -> None:
        """Find out that it was a kuvasz that committed: one that was killed, or runs with the same map elsewhere.

        Raises:
            LateCommit: A source is further in the table than we brought it; our own changes would be applied twice.
        """
        if ahead := self.ahead:
            self.positions.update(ahead)
            if self.past.is_only_watched:
                return
            # Whoever looks may be another one than who brings changes, and is the only one who is told.
            self.era.pass_over({source: position.lsn for source, position in ahead.items()})
            for source, position in ahead.items():
                if source in self.open and self.open[source].commit_lsn < position.lsn:
                    self.open.abandon(source)
            what = f"another process has committed changes of source {', '.join(sorted(ahead))}"
            message = f"{place_of(table=self.name)}: {what}"
            raise LateCommit(message, hint="it begins again behind them; run one kuvasz per map")


def _secret(index_folder: Path) -> bytes:
    """Return what only this machine knows of the seeds of keys.

    Raises:
        LakeError: It cannot be kept.
    """
    try:
        return index_seed.secret_of(index_folder)
    except OSError as error:
        message = f"the seed of the indexes cannot be kept in {index_folder}: {error}"
        raise LakeError(message, hint="make room there, and let kuvasz write to it; it is tried again") from error


__all__ = ["LakeTable"]
