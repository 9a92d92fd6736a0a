"""One target of the lake in memory. The same words as in `kuvasz.lake.table.table`."""

from __future__ import annotations

import dataclasses
import secrets
import threading
from typing import TYPE_CHECKING

from kuvasz.config import names
from kuvasz.fold.keys import SEED_BYTES
from kuvasz.lake.format import layout, member, rule
from kuvasz.lake.format.binding import bind
from kuvasz.lake.format.schema import LakeSchema, typed, wanted
from kuvasz.lake.memory.rows import MemoryRows
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.modes import veil

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.errors import KuvaszError
    from kuvasz.lake.memory.source_notes import MemorySourceNotes
    from kuvasz.model import Relation, SourcePosition
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import Feed, Target


class MemoryTable:
    """One target.

    Args:
        target: What the map says of it.
        relation: The first source table that feeds it.
        notes: The lake's; learn what comes with a position.
    """

    def __init__(self, target: Target, relation: Relation, notes: MemorySourceNotes) -> None:
        self.lock = threading.RLock()
        self.target = target
        self.schema = LakeSchema(schema_id=0, fields=wanted(target, typed(target, relation)))
        layout.wanted(target, self.schema.fields)  # says what is wrong with it; rows in memory lie in no order
        self._key = relation.key
        self._seed = secrets.token_bytes(SEED_BYTES)
        self._notes = notes
        self._shapes: dict[tuple[str, Relation], Shape] = {}
        self._rules: dict[str, str] = {}  #: source -> what its rows were made by; see `kuvasz.lake.format.rule`
        self._targets: dict[str, Target] = {}  #: source -> what the map says for it
        self.positions: dict[str, SourcePosition] = {}
        self.era = WriteEra.begin(self.positions)
        self.rows = MemoryRows(target.name, target.type, is_soft=target.is_soft)

    def shape(self, feed: Feed, relation: Relation) -> Shape:
        """Return how a relation's columns meet the table's fields."""
        found = self._shapes.get((feed.source, relation))
        if found is None:
            seed = member.seed(self._seed, member.of(feed.source))
            target = self._targets.get(feed.source, self.target)
            bound = bind(target, self.schema, self._key, seed, feed, typed(target, relation))
            found = veil.unveil(bound, relation, target.name)
            self._shapes[feed.source, relation] = found
        return found

    def settle_rule(self, target: Target, feed: Feed) -> str:
        """Go by what the map says for a source; return why its rows have to be copied again, empty if they have not.

        Raises:
            OtherRule: They would have to, and are of a type that keeps what was.
        """
        source = feed.source
        if self._targets.get(source) != target:
            self._targets[source] = target
            self._shapes.clear()
        if not self._keeps_rows(source):
            return ""
        now = rule.of(target, {}, is_own_alone=feed.is_own_alone)
        why = rule.why_copy(self._rules.get(source), now, target, feed)
        if why:
            self.forget_position(source)
        else:
            self.note_rule(feed)
        return why

    def _keeps_rows(self, source: str) -> bool:
        """Whether rows of a source are there that no copy is about to make right."""
        is_kept = self.rows.is_growing and self._notes.gap(self.target.name, source) is not None
        return source in self.positions or is_kept

    def note_rule(self, feed: Feed) -> None:
        """Note that a source's rows are made as the map says."""
        target = self._targets.get(feed.source, self.target)
        self._rules[feed.source] = rule.of(target, {}, is_own_alone=feed.is_own_alone)

    def sid(self, feed: Feed) -> str | None:
        """Return what tells the rows of a feed from those of others."""
        sid = feed.sid if self.target.has_sid else None
        which = member.of(feed.source)
        return names.member_name(sid or "", which) if which else sid

    def add_columns(self, relation: Relation) -> None:
        """Add the columns of a relation that are lacking."""
        first = 1 + max(max(field.field_id, *field.inner_ids, 0) for field in self.schema.fields)
        lacking = [field for field in wanted(self.target, typed(self.target, relation), first_id=first)
                   if self.schema.by_name(field.name) is None]  # fmt: skip
        if lacking:
            added = tuple(dataclasses.replace(field, required=False) for field in lacking)
            self.schema = LakeSchema(schema_id=self.schema.schema_id + 1, fields=self.schema.fields + added)
            self._shapes.clear()

    def make_visible(self, positions: Mapping[str, SourcePosition]) -> int | None:
        """Make what was worked out visible with the positions; return the snapshot's number if rows changed."""
        is_changed = self.rows.make_visible()
        if not is_changed and positions.keys() <= self.positions.keys():
            return None
        self.positions.update(positions)
        for source, position in positions.items():
            if not position.commit_lsn:  # a copy
                self._notes.remember_skipped(self.target.name, source, is_skipped=position.is_skip)
            if position.published:
                self._notes.remember_published(self.target.name, source, position.published)
        return self.rows.snapshots if is_changed else None

    def forget_position(self, source: str) -> SourcePosition | None:
        """Drop a source's position, and return it; what was written of the source and not committed never will be."""
        self.rows.abandon(source)
        self.era.drop(source)
        return self.positions.pop(source, None)

    def fail(self, error: KuvaszError) -> None:
        """Take nothing any more, until it is resumed."""
        self.era = WriteEra(accepted={}, error=error)
        self.rows.abandon_all()

    def resume(self, failure: KuvaszError | None) -> None:
        """Begin again at the positions, if this is why it failed, or why a source of it did."""
        self.era = self.era.resumed(failure, self.positions)


__all__ = ["MemoryTable"]
