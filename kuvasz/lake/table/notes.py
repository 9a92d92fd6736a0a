"""What is noted of each source in the properties of its lake table, besides columns and position themselves.

A note lives in a property because it must survive the expiry of snapshots, and be seen by every process.
"""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.lake.definition.noted_columns import ColumnNotes
from kuvasz.lake.format import gaps, rule, source_positions, table_identity
from kuvasz.model import SourcePosition
from kuvasz.ports import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.jvm.iceberg_table import IcebergTable

#: So many properties are asked for one by one: of more, all of the table's are read.
_FEW = 4

#: Table property that holds the id of the last commit: how a lost answer is looked up.
COMMIT_PROPERTY = "kuvasz.commit"

#: The same for commits that only rewrite files: they may be another process's than the stream's.
REWRITE_PROPERTY = "kuvasz.rewrite"

#: Table property, and entry in the snapshot's summary, with the id of the last commit that changed rows: where the
#: current snapshot does not descend from that one's, the positions are not true. See `kuvasz.lake.table.past`.
ANCHOR_PROPERTY = "kuvasz.anchor"

#: Table property with a word that is another one each time it is seen that someone set the table back: what a machine
#: has kept of its rows from before says nothing then.
SET_BACK_PROPERTY = "kuvasz.set_back"

#: Begins a table property with the partitions of a source's table, as `kuvasz.source.catalog.partitions` names them.
PARTITIONS_PREFIX = "kuvasz.partitions."

#: Begins a table property with the catalog rows by which a source's table was published without interruption.
PUBLISHED_PREFIX = "kuvasz.published."

#: Begins a table property with the LSN at which a source's table was taken in without the rows that it had; empty:
#: it was copied since.
SKIPPED_PREFIX = "kuvasz.skipped."

#: Begins a table property with why a source's position is not true: someone set the table back.
REWOUND_PREFIX = "kuvasz.rewound."

#: Begins a property of the table of commits (`kuvasz.lake.about.commits`): up to where it has the snapshots of a
#: target. There may be thousands, so summaries do not repeat them.
SEEN_PREFIX = "kuvasz.seen."

#: Begins a table property with the id of the log that holds what the table lacks of a source.
PARKED_PREFIX = "kuvasz.parked."


def is_set_back(table: IcebergTable) -> bool:
    """Whether a table's rows are not those of our last commit, nor of what others made of them.

    Ancestors that were expired end the search: what cannot be seen is no rewind.
    """
    anchor = table.properties.get(ANCHOR_PROPERTY)
    if anchor is None:
        return False
    newest, is_whole = table.snapshots.newest_of_summaries(ANCHOR_PROPERTY)
    return newest != anchor and (newest is not None or is_whole)


def seen_set_back() -> dict[str, str]:
    """Return the properties that say to all machines that someone set a table back."""
    return {SET_BACK_PROPERTY: uuid.uuid4().hex}


class Notes:
    """The notes of one table.

    Args:
        table: The Iceberg table. What it showed at its last look counts.
    """

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._columns = ColumnNotes(table)

    def parked(self, source: str) -> str | None:
        """Return the id of the log that holds what the table lacks of a source; None: it lacks nothing."""
        return self._table.property_of(PARKED_PREFIX + source)

    def park(self, source: str, log_id: str | None) -> None:
        """Note the id of that log, or that there is none any more."""
        if log_id is None:
            self._table.remove_properties([PARKED_PREFIX + source])
        else:
            self._table.set_properties({PARKED_PREFIX + source: log_id})

    def partitions(self, source: str) -> frozenset[str] | None:
        """Return the partitions of a source's table whose rows are all here; None: nobody said."""
        text = self._table.property_of(PARTITIONS_PREFIX + source)
        return None if text is None else frozenset(json.loads(text))

    def remember_partitions(self, source: str, partitions: frozenset[str]) -> None:
        """Store which partitions of a source's table are in the lake."""
        if partitions != self.partitions(source):
            self._table.set_properties({PARTITIONS_PREFIX + source: json.dumps(sorted(partitions))})

    def published(self, source: str) -> str | None:
        """Return by which catalog rows a source's table was published all the time; None: nobody said."""
        return self._table.property_of(PUBLISHED_PREFIX + source)

    def published_of(self, sources: Sequence[str]) -> Mapping[str, str | None]:
        """Return what `published` says of several sources, by source: of more than a few with one question."""
        if len(sources) <= _FEW:
            return {source: self.published(source) for source in sources}
        properties = self._table.properties
        return {source: properties.get(PUBLISHED_PREFIX + source) for source in sources}

    def remember_published(self, source: str, published: str) -> None:
        """Store by which catalog rows a source publishes its table."""
        if published != self.published(source):
            self._table.set_properties({PUBLISHED_PREFIX + source: published})

    def skipped(self, source: str) -> bool:
        """Whether the table lacks what a source's had when it was taken in."""
        return bool(self._table.property_of(SKIPPED_PREFIX + source))

    def rule(self, source: str) -> str | None:
        """Return by which rule of the map a source's rows were made, see `kuvasz.lake.format.rule`; None: unknown."""
        return self._table.property_of(rule.PREFIX + source)

    def is_former(self, source: str) -> bool:
        """Whether what is there of a source is of the type that the table had before."""
        return table_identity.is_former(self._table.properties, source)

    def begin(self, changeset: Changeset, source: str, position: SourcePosition) -> None:
        """Have the commit of a copy or a repair say whether it left out the rows that there were."""
        if self.is_former(source):
            changeset.properties[table_identity.FILLED_PREFIX + source] = "true"
        if position.is_skip:
            changeset.properties[SKIPPED_PREFIX + source] = lsn.render(position.lsn)
        elif self.skipped(source):
            changeset.properties[SKIPPED_PREFIX + source] = ""

    def gaps(self, source: str) -> tuple[Gap, ...]:
        """Return what is missing of a source's changes, oldest first; the last one may be open."""
        name = gaps.PREFIX + source
        text = self._table.property_of(name)
        return gaps.parse({} if text is None else {name: text}, source, self._table.name)

    def close_gap(
        self, changeset: Changeset, source: str, to_lsn: int, until_us: int, gap_lsn: int | None = None
    ) -> None:
        """Have a commit close the gap of a source that is open, if there is one; see `Gap` for LSN and time.

        Else it notes the one that begins at `gap_lsn`, if there was one.
        """
        found = self.gaps(source)
        gap = gaps.open_one(found)
        if gap is None and gap_lsn is not None:
            gap = Gap(from_lsn=gap_lsn, noticed_us=time.time_ns() // 1000)
            found = (*found, gap)
        if gap is not None:
            closed = dataclasses.replace(gap, to_lsn=to_lsn, until_us=until_us)
            changeset.properties[gaps.PREFIX + source] = gaps.render((*found[:-1], closed))

    def keep(self, changeset: Changeset) -> None:
        """Store what a commit was to note that was not made, for no row changes by it."""
        if changeset.properties:
            self._table.set_properties(changeset.properties)

    def drop_position(
        self, source: str, *, to_repair: bool, is_gone: bool = False, gap_lsn: int | None = None
    ) -> None:
        """Take a source's position out, and open a gap in its place or forget what there was of gaps.

        The gap begins at `gap_lsn`, if that is below the position. With `is_gone` what is known of its columns and
        partitions goes in the same commit.

        Where the table was set back, the position is that of rows which are not there any more: the gap begins where
        those that are there end.
        """
        dropped = [source_positions.PREFIX + source, PARKED_PREFIX + source, REWOUND_PREFIX + source]
        if is_gone:
            dropped += [*self._columns.without(source), PARTITIONS_PREFIX + source]
        known = source_positions.parse(self._table.properties, self._table.name).get(source)
        if not to_repair:
            self._table.remove_properties([*dropped, gaps.PREFIX + source, rule.PREFIX + source])
        elif known is not None:
            is_back = is_set_back(self._table)
            if REWOUND_PREFIX + source in self._table.properties or is_back:
                known = self._shown(source, known)
            gap = Gap(from_lsn=gaps.begin(known.lsn, gap_lsn), noticed_us=time.time_ns() // 1000)
            rendered = gaps.render((*self.gaps(source), gap))
            marked = seen_set_back() if is_back else {}
            self._table.set_properties({gaps.PREFIX + source: rendered, **marked, **dict.fromkeys(dropped)})
        elif is_gone:
            self._table.remove_properties(dropped)
        self._columns.mend()

    def _shown(self, source: str, known: SourcePosition) -> SourcePosition:
        """Return the position that the rows of the current snapshot have; 0/0 if its snapshots do not say it."""
        text, _ = self._table.snapshots.newest_that_says(lambda entry: source_positions.text_in(entry, source))
        told = {source_positions.PREFIX + source: text} if text else {}
        shown = source_positions.parse(told, self._table.name).get(source)
        return shown if shown is not None and shown.history == known.history else SourcePosition(lsn=0)
