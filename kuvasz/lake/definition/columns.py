"""The columns of a lake table's sources, and how the table follows them.

What is known of each source's columns stands in the table's properties (`kuvasz.evolve.column_notes`); what is to be
done where they changed is worked out by `kuvasz.lake.format.planning`. Here it is done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kuvasz.errors import CopyNeeded, SchemaAwaited, SchemaError, SchemaHeld, place_of, resync_of, retry_of
from kuvasz.evolve import sights
from kuvasz.lake.definition import hidden_defaults
from kuvasz.lake.definition.agreement import Agreement
from kuvasz.lake.definition.known_sources import KnownSources
from kuvasz.lake.definition.noted_columns import ColumnNotes
from kuvasz.lake.definition.shapes import Shapes
from kuvasz.lake.definition.source_rules import SourceRules
from kuvasz.lake.format import earlier_types, layout, planning, rule, table_identity
from kuvasz.lake.format.schema import deleted_at
from kuvasz.lake.format.schema_steps import AddField, RenameField
from kuvasz.model import Relation, TableType

if TYPE_CHECKING:
    from kuvasz.evolve.known import SourceColumns
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.executors.expressions import Expressions
    from kuvasz.lake.format.earlier_types import EarlierTypes
    from kuvasz.lake.format.evolution import Evolution
    from kuvasz.lake.format.schema import LakeSchema
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.model import SourcePosition
    from kuvasz.ports import Feed, Target

#: The first format version with defaults of fields.
_DEFAULT_FORMAT = 3

#: How many of the sources that one waits for an error names; there may be others.
_NAMED = 3


class Columns:
    """The columns of one table's sources; its lock must be held for what changes the table.

    Args:
        table: The Iceberg table.
        definition: What it is.
        reset_index: Has the index begin anew, where rows without a key are told apart otherwise.
        positions: Its sources' positions.
        expressions: Checks those of the map.
        forget_position: Drops a source's position, so that its table is copied again.
    """

    def __init__(
        self,
        table: IcebergTable,
        definition: Definition,
        reset_index: Callable[[], None],
        positions: Mapping[str, SourcePosition],
        expressions: Expressions,
        forget_position: Callable[[str], None],
    ) -> None:
        self._table = table
        self._definition = definition
        self._reset_index = reset_index
        self._positions = positions
        self._forget_position = forget_position
        self.known = KnownSources(definition, table.properties)
        self.shapes = Shapes(definition, self.known, expressions)
        self._agreement = Agreement(self.known, positions)
        self.rules = SourceRules(table, positions)
        self._noted = ColumnNotes(table)
        self._fitting: dict[str, tuple[Target, Feed, Relation, int]] = {}  # source -> what `fit` was told, and schema

    def forget(self, source: str) -> None:
        """Forget the columns of a source that is gone, or came back as another one; the lake knows already."""
        with self._definition.lock:
            self.known.pop(source, None)
            self.shapes.forget()
            self._agreement.forget(source)
            self.unfit(source)

    def fits(self, target: Target, feed: Feed, relation: Relation) -> bool:
        """Whether the table was made to fit a source table that looked the same, and no row of it is here yet."""
        asked = (target, feed, relation, self._definition.schema.schema_id)
        return feed.source not in self._positions and self._fitting.get(feed.source) == asked

    def fit(self, target: Target, feed: Feed, relation: Relation) -> None:
        """Note that all is done that `evolve` and whoever called it do."""
        known = self.shapes.target_of(feed.source)  # one of a fleet, not an equal one per source
        self._fitting[feed.source] = (
            known if known == target else target, feed, relation, self._definition.schema.schema_id
        )  # fmt: skip

    def unfit(self, source: str) -> None:
        """Have nothing be noted of a source."""
        self._fitting.pop(source, None)

    def made_by(self, source: str) -> dict[str, str]:
        """Return the properties that say of which columns, and by which rule of the map, a source's rows are made."""
        return self.known.rendered(source) | self.rules.now(source)

    def _read_again(self, key: tuple[str, ...] | None = None) -> None:
        """Read the table's columns after they were changed; the key may have changed with them."""
        with self._definition.lock:
            is_other = self._definition.read_again(key)
            self.shapes.forget()
            if is_other:
                self._reset_index()

    # The source's side changed

    def evolve(self, target: Target, feed: Feed, relation: Relation, *, is_streaming: bool) -> tuple[str, ...]:
        """Make the table fit a source table as its catalog shows it; return what was done.

        Args:
            target: What the map says of the table.
            feed: The source table.
            relation: From the catalog.
            is_streaming: Whether its changes are being applied: then nothing is done that needs a copy. Otherwise
                somebody has looked at the lake's table just now.

        Raises:
            SchemaError: The table cannot follow, or must not.
            SchemaAwaited: Other sources fill what would get another name. Nothing was done.
            CopyNeeded: It has to be copied again, and it is streaming. Nothing was done.
            OtherRule: The map makes other rows than those that are there, and they are kept.
        """
        self.unfit(feed.source)
        self.shapes.go_by(feed.source, target)
        if target.is_soft:
            self._have_deletions()
        restored = () if is_streaming else self._see_schema(feed)
        planned, view, is_numbered = self._plan_for(target, feed, relation)
        place = feed.place
        awaited = self._agreement.ask(feed.source, planned.renamed)
        if awaited and target.on_schema_change == "agree":
            raise _awaited(target, feed, planned.told, awaited)
        if planned.is_change and target.on_schema_change in {"hold", "stop"}:
            raise _not_followed(target, feed, planned.told or (planned.why_copy,))
        if target.type is not TableType.CLONE:
            self._refuse_other_rows(target, planned, place, has_rows=feed.source in self._positions)
        why = planned.why_copy
        if not is_streaming:  # else the map is what it was
            numbers = rule.numbered(target, view, planned.reads.values())
            other = self.rules.go_by(target, feed, numbers)
            why = why or other
        if self._definition.is_bag and (planned.steps or planned.is_change):
            why = why or "rows without a key are found by all of their columns"
        # What keeps the past has it as it was: a copy would lose what happens until it is made.
        is_followed = bool(why) and feed.source in self._positions
        needs_copy = is_followed and target.type is TableType.CLONE
        if needs_copy and is_streaming:
            raise CopyNeeded(f"{place}: {why}", hint="kuvasz copies the table again by itself")
        if is_streaming and planned.steps:  # what is read again must not be taken for ours
            self._table.refresh()
            self._see_schema(feed)
        self._check_names(planned, feed)
        if needs_copy:
            # Before anything else: whatever happens from here on, the copy is made.
            self._forget_position(feed.source)
        elif not is_streaming:
            self.rules.remember(target, feed.source)
            lacks_rows = self.rules.lacks_rows(feed.source)
            self.shapes.mix(feed.source, is_mixed=self.rules.is_mixed(feed.source), lacks_rows=lacks_rows)
        self._change(feed, relation, view, planned, is_remembered=is_numbered)
        told = (*restored, *planned.told)
        return (*told, self._told_of_rows(target.type, why)) if is_followed else told

    def _have_deletions(self) -> None:
        """Have a column for when rows are deleted; a table from before `deletes: soft` lacks it.

        Raises:
            SchemaError: A column of that name is the source's, or was.
        """
        if table_identity.is_soft(self._table.properties):
            return
        field = deleted_at()
        if self._definition.schema.by_name(field.name) is not None:
            message = f"{place_of(table=self._definition.name)}: it has a column {field.name} that is not kuvasz's"
            hint = "`deletes: soft` needs that name: choose another `target`, or drop the table to copy it anew"
            raise SchemaError(message, hint=hint)
        self._table.schema.change([AddField(field)], lambda _: table_identity.SOFT)
        self._read_again()

    def _told_of_rows(self, kind: TableType, why: str) -> str:
        """Say what becomes of rows that are there and are not as a copy would have them."""
        if kind is TableType.CLONE:
            return f"its rows are copied again: {why}"
        if kind is TableType.HISTORY:
            resync = resync_of(self._definition.name)
            return f"versions that are open show what they showed ({why}): {resync} begins new ones"
        return f"rows that are there stay as they are: {why}"

    def _refuse_other_rows(self, target: Target, planned: Evolution, place: str, *, has_rows: bool) -> None:
        """Refuse what makes other rows of those that a table keeps for good.

        Raises:
            SchemaError: The rows would be other ones.
        """
        resync = resync_of(self._definition.name)
        if planned.has_other_key:
            message = f"{place}: {'; '.join(planned.told)}, and a table of type {target.type} is not copied again"
            raise SchemaError(message, hint="change the key back, or choose another `target`")
        if not has_rows:
            return
        if planned.moved:
            message = f"{place}: {'; '.join(planned.told)}"
            hint = (
                "if the expressions are to mean what they meant, name the columns in the map as they are called now;"
            )
            raise SchemaError(message, hint=f"{hint} {resync} copies the table with what they mean now")
        if target.type is TableType.HISTORY and planned.why_other_keys:
            # Versions that are open would never be found by their keys again, and never end.
            message = f"{place}: {planned.why_other_keys}, and rows are identified by it"
            raise SchemaError(message, hint=f"{resync} ends their versions and begins new ones")

    def check(self, feed: Feed, relation: Relation) -> None:
        """Refuse a source table that changed in a way that this table has not followed yet, or another rule of a map.

        Raises:
            SchemaError: The source table changed in such a way, or the rows are made by another rule than the map's.
        """
        target = self.shapes.target_of(feed.source)
        planned, relation, _ = self._plan_for(target, feed, relation)
        if planned.is_change or planned.steps or planned.why_copy:
            what = "; ".join(planned.told) or planned.why_copy or "the lake lacks some of its columns"
            raise SchemaError(f"{feed.place}: {what}", hint="let kuvasz run until it has followed, then compare")
        self.rules.check(target, feed, rule.numbered(target, relation, planned.reads.values()))

    def _plan_for(self, target: Target, feed: Feed, relation: Relation) -> tuple[Evolution, Relation, bool]:
        """Return what is to be done for a source table, its relation as it counts, and whether to remember it."""
        table, known, place = self._definition, self.known.get(feed.source), feed.place
        relation = hidden_defaults.over(target, relation)
        is_numbered = all(column.attnum for column in relation.columns)
        described, projection = relation, self.shapes.project(feed, relation)
        view = projection.relation
        have_rows = len(self._positions) > (feed.source in self._positions)
        others = dataclasses.replace(self.known.others(feed.source), have_rows=have_rows)
        if target.set is None and is_numbered:
            relation = view
            planned = planning.plan(
                target, table.schema, table.key, view, known, others, place,
                takes_defaults=table.format_version >= _DEFAULT_FORMAT,
            )  # fmt: skip
        else:
            planned = planning.by_name(
                target, table.schema, table.key, _numbered(view), relation, known if is_numbered else None, others,
                place,
            )  # fmt: skip
        if is_numbered:
            planned = planned.reading(target, described, projection.reads, known)
        return planned, relation, is_numbered

    def _check_names(self, planned: Evolution, feed: Feed) -> None:
        table = self._definition
        if planned.steps:
            partitions = self._table.layout.partition_names()
            layout.refuse_taken(planned.steps, table.schema.fields, partitions, feed.place, table.name)
        if feed.source not in self._positions:  # a copy fills what is added
            return
        earlier = self._table.schema.earlier_columns() if planned.added else {}
        for name in sorted(set(planned.added.values()) & earlier.keys()):
            if earlier[name] is not None and table.target.set is not None:  # else it is ours that was renamed
                raise self._changed_by_another(name, earlier[name])
        dropped = {name for name in planned.added.values() if earlier.get(name, name) is None}
        if dropped:
            message = f"{place_of(table=table.name)}: column {', '.join(sorted(dropped))} was dropped in the lake"
            hint = f"added anew it would be empty: copy the table again: {resync_of(table.name)}"
            raise SchemaError(message, hint=hint)

    def _change(
        self, feed: Feed, relation: Relation, view: Relation, planned: Evolution, *, is_remembered: bool
    ) -> None:
        """Change schema and properties in one commit, if they change.

        Args:
            feed: The source table.
            relation: As the catalog has it, which is how messages will name its columns.
            view: As it counts for the table.
            planned: What is to be done.
            is_remembered: Whether it is to be remembered.
        """
        table = self._definition
        before, position = self.known.get(feed.source), self._positions.get(feed.source)
        from_lsn = None if position is None else position.lsn
        remembered: list[SourceColumns] = []

        def properties(schema: LakeSchema) -> dict[str, str | None]:
            remembered.append(planned.columns(view, schema, before, from_lsn, sights.of(relation)))
            is_noted = remembered[-1] == before and not self._noted.is_earlier(feed.source)
            if (is_noted and planned.key == table.key) or not is_remembered:
                return {}
            return {**self._noted.change(feed.source, remembered[-1]), **table_identity.render_key(planned.key)}

        if planned.steps:
            self._table.schema.change(planned.steps, properties)
        elif (values := properties(table.schema)) and (before or position or planned.key != table.key):
            self._table.set_properties(values)  # else they come with its first copy (`made_by`), as all else of it
        self._noted.mend()
        with table.lock:
            if is_remembered:
                self.known[feed.source] = remembered[-1]
            if planned.steps or planned.key != table.key:
                self._read_again(planned.key)
            elif self.known.get(feed.source) != before:
                self.shapes.forget()

    def make_room(self, feed: Feed, relation: Relation) -> tuple[str, ...]:
        """Have a field for every column of a message, also of a type that it had before; return what was done.

        Args:
            feed: The source table.
            relation: The message's, with numbered columns.

        Raises:
            SchemaError: The table was changed by someone else.
        """
        if feed.source not in self.known or not self._lacking(feed, relation).fields:
            return ()
        self.unfit(feed.source)
        self._table.refresh()
        self._see_schema(feed)  # what is read again must not be taken for ours
        lacking, known = self._lacking(feed, relation), self.known[feed.source]
        remembered: list[SourceColumns] = []

        def properties(schema: LakeSchema) -> dict[str, str | None]:
            remembered.append(lacking.remembered(known, schema))
            return self._noted.change(feed.source, remembered[-1])

        self._table.schema.change(lacking.steps, properties)
        self._noted.mend()
        with self._definition.lock:
            self.known[feed.source] = remembered[-1]
            self._read_again()
        return lacking.told

    def _lacking(self, feed: Feed, relation: Relation) -> EarlierTypes:
        table, view = self._definition, self.shapes.view(feed, relation).relation
        target = self.shapes.target_of(feed.source)
        return earlier_types.lacking(target, table.schema, table.key, view, self.known[feed.source])

    # The lake's side changed

    def follow(self) -> None:
        """Take over a schema that someone else changed in the lake, if every column of ours is still there.

        Raises:
            SchemaError: A column of ours is missing.
        """
        if not self.known.recall(self._table.properties, self._positions):
            fresh = {field.field_id: field for field in self._table.schema.read().fields}
            for field in self._definition.schema.fields:
                found = fresh.get(field.field_id)
                if found is None or found.name != field.name:
                    raise self._changed_by_another(field.name, None if found is None else found.name)
        self._read_again()

    def _see_schema(self, feed: Feed) -> tuple[str, ...]:
        """Read the lake's columns as last seen, for someone else may have changed them; return what was put right.

        A source that is to be copied gets the names back; for one that goes on from its position nobody knows what
        the other one wants.

        Raises:
            SchemaError: A column of ours has another name, or is gone.
        """
        table = self._table
        mine = self._definition.schema
        is_same = table.schema.id == mine.schema_id
        if not is_same:
            self.known.recall(table.properties, self._positions)
        names = self.known.names_of_fields()
        found = planning.strays(mine if is_same else table.schema.read(), names, self.known.get(feed.source))
        if feed.source in self._positions:
            for name, now in found.items():
                raise self._changed_by_another(name, now)
        if not is_same:
            self._read_again()
        renamed = {
            name: now for name, now in found.items() if now is not None and not self._definition.schema.by_name(name)
        }
        if renamed:
            steps = [RenameField(now, name) for name, now in renamed.items()]
            table.schema.change(steps, lambda _: {})
            self._read_again()
        return tuple(f"column {now} of the lake is named {name} again" for name, now in renamed.items())

    def _changed_by_another(self, name: str, now: str | None) -> SchemaError:
        what = "dropped" if now is None else f"renamed to {now}"
        hint = f"copy the table again: {resync_of(self._definition.name)}"
        if now is not None:
            hint = f"give it its name back, and then: {retry_of(self._definition.name)}; or {hint}"
        message = f"{place_of(table=self._definition.name)}: column {name} was {what} in the lake by someone else"
        return SchemaError(message, hint=hint)


def _numbered(relation: Relation) -> Relation:
    """Return a relation of which only names are known with numbers that mean nothing."""
    columns = tuple(dataclasses.replace(column, attnum=place) for place, column in enumerate(relation.columns, 1))
    return dataclasses.replace(relation, columns=columns)


def _not_followed(target: Target, feed: Feed, told: Sequence[str]) -> SchemaError:
    message = f"{feed.place}: {'; '.join(told)}"
    if target.on_schema_change == "hold":
        hint = f"the map says `on_schema_change: hold`, and its changes are kept: to follow, {retry_of(target.name)}"
        return SchemaHeld(message, hint=hint)
    return SchemaError(message, hint="the map says `on_schema_change: stop`: set it to `evolve`, or change it back")


def _awaited(target: Target, feed: Feed, told: Sequence[str], awaited: Sequence[str]) -> SchemaError:
    names = ", ".join(awaited[:_NAMED]) + (" and others" if len(awaited) > _NAMED else "")
    has = "has" if len(awaited) == 1 else "have"
    message = f"{feed.place}: {'; '.join(told)}, but {names} {has} not done the same"
    hint = f"its changes are kept until all have; to have the lake follow the first: {retry_of(target.name)}"
    return SchemaAwaited(message, hint=hint)


__all__ = ["Columns"]
