"""Whether a lake table goes on from where kuvasz left it, or someone set it back: then its positions are not true.

A position is worth something in the snapshot it was committed in, and in those that descend from it. Two facts say
that a table stands elsewhere:

- The property `kuvasz.anchor` names our newest commit, and the summary of its snapshot does, too. If the newest one
  named by the current snapshot and its ancestors is another, the table was rolled back, or replaced. Ancestors that
  were expired end the search: what cannot be seen is no rewind.
- An older catalog, or metadata file, agrees with itself. But its positions lie before those that `Witness` has seen,
  or are those that a commit of ours had dropped.

What is found is noted for each source in the property `kuvasz.rewound.<source>`, because the next commit of another
source would hide it. Whatever drops the position takes the note with it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.errors import rewound
from kuvasz.events import Event, EventLog
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.notes import REWOUND_PREFIX, is_set_back, seen_set_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.lake.table.table_index import TableIndex
    from kuvasz.model import SourcePosition
    from kuvasz.state.ports import Witness

_log = EventLog(__name__)


class Past:
    """The past of one table, whose lock is held.

    Args:
        name: The name of the table.
        table: The Iceberg table. What it showed at its last look counts.
        positions: Its sources' positions, as they were brought there.
        index: Read anew when the table was set back.
        witness: Has seen its positions; None for who only passes by.
    """

    def __init__(
        self,
        name: str,
        table: IcebergTable,
        positions: Mapping[str, SourcePosition],
        index: TableIndex,
        witness: Witness | None,
    ) -> None:
        self._name = name
        self._table = table
        self._positions = positions
        self._index = index
        self._witness = witness
        self._seen_at = 0.0  # when the last look of `see` began, monotonic seconds
        self._back: dict[str, str] = {}  #: source whose rows may be missing -> why, as far as this process has seen

    @property
    def is_only_watched(self) -> bool:
        """Whether another process brings what the table's sources send."""
        return self._witness is None

    def note(self) -> None:
        """Note the positions as they are now."""
        if self._witness is not None:
            lsns = {source: position.lsn for source, position in self._positions.items()}
            self._witness.note(self._name, lsns)

    def forget(self, source: str) -> None:
        """Forget a source whose position is about to be dropped."""
        self._back.pop(source, None)
        if self._witness is not None:
            self._witness.drop(self._name, source)

    def give_up(self, source: str, position: SourcePosition) -> None:
        """Note that the lake has dropped a source's position, in a commit of ours: it must not come back."""
        if self._witness is not None:
            self._witness.give_up(self._name, source, position)

    def expect(self, positions: Mapping[str, SourcePosition]) -> None:
        """Note the positions that a commit of ours is about to bring: a kill may come before `note`."""
        if self._witness is not None:
            for source, position in positions.items():
                self._witness.expect(self._name, source, position)

    def see(self, asked_at: float) -> None:
        """Look at the table before a source begins with it, once for all sources that ask at a time.

        Args:
            asked_at: When this one asked, in monotonic seconds: a look that began later shows all that it may need.

        Raises:
            LakeRewound: Someone set the table back; each of its sources is told by `refuse` from now on.
            LakeError: The catalog does not answer.
        """
        if self._seen_at > asked_at:
            return
        begin = time.monotonic()
        self._table.refresh()
        self.check()
        self.note()
        self._seen_at = begin

    def check(self) -> None:
        """Find out whether the table was set back since its last commit of ours.

        Raises:
            LakeRewound: It was, and nobody had seen it. That is noted, and the index is read anew when it is used.
        """
        properties = self._table.properties
        found = self._find(properties)
        self._back |= found
        back = {source: why for source, why in found.items() if REWOUND_PREFIX + source not in properties}
        if not back:
            return
        self._index.clear()  # rows that were dead may live again
        told = {REWOUND_PREFIX + source: why for source, why in back.items()}
        self._table.set_properties({**told, **seen_set_back()})
        _log.tell(Event.LAKE_REWOUND, table=self._name, sources=back)
        raise rewound(self._name, *next(iter(back.items())))

    def refuse_all(self, sources: Iterable[str]) -> None:
        """Refuse a commit for any source of which the table was set back, whoever has seen it first.

        Raises:
            LakeRewound: The table was set back for one of them.
        """
        for source in sources:
            if source in self._back:
                raise rewound(self._name, source, self._back[source])

    def refuse(self, source: str) -> None:
        """Refuse a source of which the table was set back, until its position is dropped.

        Raises:
            LakeRewound: The table was set back for the source.
        """
        why = self._table.property_of(REWOUND_PREFIX + source)
        if why is not None:
            raise rewound(self._name, source, why)

    def _find(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the sources whose rows may be missing, with why."""
        found = source_positions.parse(properties, self._name)
        if is_set_back(self._table):
            return dict.fromkeys(found, "its rows are those of an older snapshot, or someone replaced them")
        known = dict(self._witness.known(self._name)) if self._witness is not None else {}
        for source, position in self._positions.items():
            known[source] = max(known.get(source, 0), position.lsn)
        back = {}
        for source, at in known.items():
            if source in found and found[source].lsn < at:
                before, now = lsn.render(at), lsn.render(found[source].lsn)
                back[source] = f"its position was {before} and is {now} now"
            elif source not in found and source in self._positions:
                back[source] = f"its position was {lsn.render(at)} and is gone"
        return self._find_given_up(found) | back

    def _find_given_up(self, found: Mapping[str, SourcePosition]) -> dict[str, str]:
        """Return the sources whose positions had been dropped and are there again; a new one lies behind them."""
        given_up = self._witness.given_up(self._name) if self._witness is not None else {}
        return {
            source: f"its position {lsn.render(found[source].lsn)} had been given up and is there again"
            for source, given in given_up.items()
            # One that this process dropped itself is believed by nobody: the copy that it waits for replaces it.
            if source in found and source in self._positions and (found[source].history, found[source].lsn) <= given
        }


__all__ = ["Past"]
