"""A commit put together before it is sent: what dies by it, the delete files that say so, and all it changes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kuvasz import failpoints
from kuvasz.errors import LakeError, place_of
from kuvasz.evolve import column_notes
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.files import DeleteFile, FileEntry, Sent, entry_of_new, write_position_deletes, write_vectors
from kuvasz.lake.format import rule
from kuvasz.lake.format import source_positions as position_properties
from kuvasz.lake.table.notes import (
    ANCHOR_PROPERTY,
    COMMIT_PROPERTY,
    PUBLISHED_PREFIX,
    REWRITE_PROPERTY,
    SEEN_PREFIX,
    SKIPPED_PREFIX,
)

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.table.table_index import TableIndex
    from kuvasz.model import SourcePosition

#: Begin properties that no summary repeats.
_UNTOLD = (SEEN_PREFIX, PUBLISHED_PREFIX, SKIPPED_PREFIX, column_notes.PREFIX, column_notes.SHAPE_PREFIX, rule.PREFIX)

#: The first format version with deletion vectors.
_VECTOR_FORMAT = 3


class CommitBuilder:
    """A commit upon the snapshot that a table's files describe. Use once.

    Args:
        definition: What the table is; its lock is held.
        index: Its index.
        changeset: What it changes. A file of which no row is left alive is dropped from now on.
    """

    def __init__(self, definition: Definition, index: TableIndex, changeset: Changeset) -> None:
        self._definition = definition
        self._index = index
        self._changeset = changeset
        self._deletes = self._find_deletes()

    @property
    def is_empty(self) -> bool:
        """Whether no row changes."""
        return not (self._changeset.added or self._deletes or self._changeset.dropped)

    def finish(self, positions: Mapping[str, SourcePosition]) -> Sent:
        """Write the delete files and return the commit, which is to carry positions of sources.

        Raises:
            LakeError: The store failed; it may be tried again.
        """
        delete_files = self._write_deletes() if self._deletes else []
        commit_id = uuid.uuid4().hex
        commit = self._commit(delete_files, positions, commit_id)
        return Sent(commit_id=commit_id, commit=commit, deletes=self._deletes, delete_files=delete_files)

    def _find_deletes(self) -> dict[int, BitMap64]:
        """Return the positions of each file that die by this commit and were alive before.

        A file of which no row is left alive is dropped instead: what is updated often takes itself away.
        """
        changeset, files = self._changeset, self._index.files
        deletes = {}
        for number, positions in changeset.deletes.items():
            if number in changeset.added:
                deletes[number] = positions
                continue
            if number in changeset.dropped or number not in files:
                continue  # the index does not forget the rows of a file that went because all of them were dead
            dead = files.dead(number)
            fresh = positions - dead
            if len(dead) + len(fresh) == files[number].rows:
                changeset.dropped.add(number)
            elif len(fresh):
                deletes[number] = fresh
        return deletes

    def _write_deletes(self) -> list[DeleteFile]:
        definition = self._definition
        cumulative = [self._dead(number, fresh) for number, fresh in self._deletes.items()]
        write = write_vectors if definition.format_version >= _VECTOR_FORMAT else write_position_deletes
        try:
            failpoints.hit("before_delete_files", OSError)
            written = write(definition.io_properties, definition.location, cumulative)
            failpoints.hit("after_delete_files", OSError)
        except Exception as error:  # each store fails with errors of its own
            message = (
                f"{place_of(table=definition.name)}: cannot write delete files below {definition.location}: {error}"
            )
            raise LakeError(message, hint="check the warehouse; it is tried again") from error
        return written

    def _dead(self, number: int, fresh: BitMap64) -> tuple[FileEntry, BitMap64]:
        """Return a file with all of its rows that are dead by then."""
        if number in self._changeset.added:
            file, sid = self._changeset.added[number]
            return entry_of_new(number, file, sid), fresh
        return self._index.files[number], self._index.files.dead(number) | fresh

    def _commit(
        self, delete_files: Sequence[DeleteFile], positions: Mapping[str, SourcePosition], commit_id: str
    ) -> TableCommit:
        changeset, files = self._changeset, self._index.files
        properties = {REWRITE_PROPERTY if changeset.is_rewrite else COMMIT_PROPERTY: commit_id}
        if not changeset.is_rewrite and (changeset.added or delete_files or changeset.dropped):
            properties[ANCHOR_PROPERTY] = commit_id
        properties |= changeset.properties
        for source, position in positions.items():
            properties[position_properties.PREFIX + source] = position_properties.render(position)
            if position.published:
                properties[PUBLISHED_PREFIX + source] = position.published
        known = [files[file.number] for file in delete_files if file.number in files]
        dropped = [files[number] for number in sorted(changeset.dropped)]
        return TableCommit(
            snapshot_id=self._index.snapshot_id,
            properties=properties,
            summary=_told(properties)
            | position_properties.newest(positions, changeset.newest_us)
            | changeset.summary,
            data_files=[file.json for file, _ in changeset.added.values()],
            added_deletes=[file.json for file in delete_files],
            removed_deletes=[text for entry in (*known, *dropped) for text in entry.own_deletes],
            removed_files=[data_json(entry) for entry in dropped],
            is_rewrite=changeset.is_rewrite,
            sequence=changeset.sequence,
        )


def _told(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the snapshot's summary repeats: not what is read of the newest metadata alone.

    Metadata has the summaries of all snapshots.
    """
    told = {name: value for name, value in properties.items() if not name.startswith(_UNTOLD)}
    return position_properties.packed(told)


def data_json(entry: FileEntry) -> str:
    """Return what a commit needs of a data file to remove it."""
    return json.dumps(
        {
            "spec-id": entry.spec_id, "content": "data", "file-path": entry.path, "file-format": "parquet",
            "partition": entry.partition, "file-size-in-bytes": 1, "record-count": entry.rows,
        }
    )  # fmt: skip
