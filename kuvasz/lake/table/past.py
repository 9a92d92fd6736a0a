"""Whether a lake table goes on from where kuvasz left it, or someone set it back: then its positions are not true.

A position is worth something in the snapshot it was committed in, and in those that descend from it. Two facts say
that a table stands elsewhere:

- The property `kuvasz.anchor` names our newest commit, and the summary of its snapshot does, too. If the newest one
  named by the current snapshot and its ancestors is another, the table was rolled back, or replaced. Ancestors that
  were expired end the search: what cannot be seen is no rewind.
- An older catalog, or metadata file, agrees with itself. But its positions lie before those that `Witness` has seen.

What is found is noted for each source in the property `kuvasz.rewound.<source>`, because the next commit of another
source would hide it. Whatever drops the position takes the note with it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.errors import LakeRewound
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.commit_builder import ANCHOR_PROPERTY
from kuvasz.lake.table.notes import REWOUND_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.lake.table.table import LakeTable
    from kuvasz.state.witness import Witness

_log = logging.getLogger(__name__)


class Past:
    """The past of one table, whose lock is held.

    Args:
        table: The table. What it showed at its last look counts.
        witness: Has seen its positions; None for who only passes by.
    """

    def __init__(self, table: LakeTable, witness: Witness | None) -> None:
        self._table = table
        self._witness = witness

    def note(self) -> None:
        """Note the positions as they are now."""
        if self._witness is not None:
            lsns = {source: position.lsn for source, position in self._table.positions.items()}
            self._witness.note(self._table.name, lsns)

    def forget(self, source: str) -> None:
        """Forget a source whose position is about to be dropped."""
        if self._witness is not None:
            self._witness.drop(self._table.name, source)

    def check(self) -> None:
        """Find out whether the table was set back since its last commit of ours.

        Raises:
            LakeRewound: It was. That is noted, and the index is read anew when it is used.
        """
        table = self._table
        properties = table.table.properties
        back = {source: why for source, why in self._find(properties).items()
                if REWOUND_PREFIX + source not in properties}  # fmt: skip
        if not back:
            return
        table.clear_index()  # rows that were dead may live again
        table.table.set_properties({REWOUND_PREFIX + source: why for source, why in back.items()})
        _log.error("a lake table was set back", extra={
            "event": "lake_rewound", "table": table.name, "sources": back})  # fmt: skip
        raise _rewound(table.name, *next(iter(back.items())))

    def refuse(self, source: str) -> None:
        """Refuse a source of which the table was set back, until its position is dropped.

        Raises:
            LakeRewound: It was.
        """
        why = self._table.table.properties.get(REWOUND_PREFIX + source)
        if why is not None:
            raise _rewound(self._table.name, source, why)

    def _find(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the sources whose rows may be missing, with why."""
        table = self._table
        found = source_positions.parse(properties, table.name)
        anchor = properties.get(ANCHOR_PROPERTY)
        if anchor is not None:
            newest, is_whole = table.table.newest_of_summaries(ANCHOR_PROPERTY)
            if newest != anchor and (newest is not None or is_whole):
                return dict.fromkeys(found, "its rows are those of an older snapshot, or someone replaced them")
        known = dict(self._witness.known(table.name)) if self._witness is not None else {}
        for source, position in table.positions.items():
            known[source] = max(known.get(source, 0), position.lsn)
        back = {}
        for source, at in known.items():
            if source in found and found[source].lsn < at:
                before, now = lsn.render(at), lsn.render(found[source].lsn)
                back[source] = f"its position was {before} and is {now} now"
            elif source not in found and source in table.positions:
                back[source] = f"its position was {lsn.render(at)} and is gone"
        return back


def _rewound(table: str, source: str, why: str) -> LakeRewound:
    message = f"source {source}, table {table}: someone set the table back in the lake: {why}"
    hint = f"copy it again: kuvasz resync --table {table}; or `on_lake_rewound: repair` compares and mends it"
    return LakeRewound(message, hint=hint)


__all__ = ["Past"]
