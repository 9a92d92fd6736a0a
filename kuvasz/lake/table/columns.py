"""The columns of a lake table's sources: how they meet its fields, and how the table follows them.

What is known of each source's columns stands in the table's properties (`kuvasz.evolve.known`); what is to be done
where they changed is worked out by `kuvasz.lake.format.evolution`. Here it is done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kuvasz.config import names
from kuvasz.errors import CopyNeeded, SchemaError, SchemaHeld
from kuvasz.evolve import known as known_columns
from kuvasz.lake.format import evolution, member, table_identity
from kuvasz.lake.format.binding import NO_FIELDS, bind
from kuvasz.model import Relation, TableType

if TYPE_CHECKING:
    from kuvasz.evolve.known import KnownColumn, SourceColumns
    from kuvasz.lake.executors.expressions import Expressions, Projection
    from kuvasz.lake.format.schema import LakeSchema
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import Feed, Target

#: The first format version with defaults of fields.
_DEFAULT_FORMAT = 3


class Columns:
    """The columns of one table's sources; its lock must be held for what changes the table.

    Args:
        table: The table.
        expressions: Checks those of the map.
    """

    def __init__(self, table: LakeTable, expressions: Expressions) -> None:
        self._table = table
        self._expressions = expressions
        self._known = known_columns.parse(table.table.properties, table.name)
        self._shapes: dict[tuple[str, Relation], Shape] = {}

    def of(self, source: str) -> SourceColumns | None:
        """Return what is known of a source's columns."""
        return self._known.get(source)

    def forget(self, source: str) -> None:
        """Forget the columns of a source that is gone, or came back as another one; the lake knows already."""
        with self._table.definition:
            self._known.pop(source, None)
            self.forget_shapes()

    def former_names(self) -> dict[str, str]:
        """Return the names that columns of sources had before -> the name of the field that they fill now."""
        found: dict[str, set[str]] = {}
        names = {field.field_id: field.name for field in self._table.schema.fields}
        for column in (column for known in self._known.values() for column in known.live.values()):
            if column.field in names:
                for name in column.names[:-1]:
                    found.setdefault(name, set()).add(names[column.field])
        return {name: fields.pop() for name, fields in found.items() if len(fields) == 1}

    def forget_shapes(self) -> None:
        """Have shapes worked out anew, for the schema or the key is another one."""
        self._shapes.clear()

    def shape(self, feed: Feed, relation: Relation) -> Shape:
        """Return how a relation's columns meet the table's fields.

        Raises:
            SchemaError: The table cannot hold them.
        """
        with self._table.definition:
            cached = self._shapes.get((feed.source, relation))
            if cached is None:
                cached = self._shapes[feed.source, relation] = self._shape(feed, relation)
            return cached

    def shape_now(self, feed: Feed, relation: Relation) -> Shape:
        """Return the same for a message of a table that is just as it was followed last.

        Raises:
            SchemaError: It was not, at the message's time.
        """
        known = self._known.get(feed.source)
        if known is None:
            return self.shape(feed, relation)
        sent = known.sent
        if [(column.name, column.pg_type.oid) for column in relation.columns] != [face[1:] for face in sent]:
            message = f"{_place(feed)}: its columns were others a while ago"
            raise SchemaError(message, hint="compare again when kuvasz has applied what came before")
        columns = tuple(
            dataclasses.replace(column, attnum=number)
            for column, (number, _, _) in zip(relation.columns, sent, strict=True)
        )
        return self.shape(feed, dataclasses.replace(relation, columns=columns))

    def _shape(self, feed: Feed, relation: Relation) -> Shape:
        table = self._table
        known = self._known.get(feed.source)
        if known is not None and known.oid != relation.oid:
            evolution.refuse_another(known, relation, _place(feed), table.name)
        if known is not None and not all(column.attnum for column in relation.columns):
            # The names alone say nothing: those of a message may be of another time.
            message = f"{_place(feed)}: which of its columns a message means was not found out"
            raise SchemaError(message, hint=f"copy the table again: kuvasz resync --table {table.name}")
        fields = NO_FIELDS if known is None else known.fields
        target = table.target
        is_named = target.filter is not None or target.set is not None or bool(target.mask or target.types)
        view = self._project(feed, _named_as_now(relation, known) if is_named else relation)
        live = frozenset() if known is None else frozenset(column.field for column in known.live.values())
        seed = member.seed(table.seed, names.member_of(feed.source))
        left = {} if known is None else known.left
        bound = bind(table.target, table.schema, table.key, seed, feed, view.relation, fields, live, left)
        if table.target.has_members:
            bound = dataclasses.replace(bound, family=table.seed)
        return view.apply(bound, relation)

    def _project(self, feed: Feed, relation: Relation) -> Projection:
        """Return how a relation looks from this table.

        Raises:
            ExpressionRefused: An expression of the map does not fit it.
        """
        return self._expressions.project(self._table.target, relation, _place(feed), self._table.key)

    # The source's side changed

    def evolve(self, target: Target, feed: Feed, relation: Relation, *, is_streaming: bool) -> tuple[str, ...]:
        """Make the table fit a source table as its catalog shows it; return what was done.

        Args:
            target: What the map says of the table.
            feed: The source table.
            relation: From the catalog.
            is_streaming: Whether its changes are being applied: then nothing is done that needs a copy.

        Raises:
            SchemaError: The table cannot follow, or must not.
            CopyNeeded: It has to be copied again, and it is streaming. Nothing was done.
        """
        table = self._table
        restored = () if is_streaming else self._see_schema(feed)
        planned, relation, is_numbered = self._plan_for(target, feed, relation)
        place = _place(feed)
        if planned.is_change and target.on_schema_change != "evolve":
            raise _not_followed(target, feed, planned.told or (planned.why_copy,))
        why = planned.why_copy
        if target.type is not TableType.CLONE:
            self._refuse_other_rows(target, planned, place, has_rows=feed.source in table.positions)
        if table.is_bag and (planned.steps or planned.is_change):
            why = why or "rows without a key are found by all of their columns"
        # What keeps the past has it as it was: a copy would lose what happens until it is made.
        is_followed = bool(why) and feed.source in table.positions
        needs_copy = is_followed and target.type is TableType.CLONE
        if needs_copy and is_streaming:
            raise CopyNeeded(f"{place}: {why}", hint="kuvasz copies the table again by itself")
        if is_streaming and planned.steps:  # what is read again must not be taken for ours
            self._see_schema(feed)
        if feed.source in table.positions:  # else a copy fills what is added
            self._check_dropped(planned)
        if needs_copy:
            # Before anything else: whatever happens from here on, the copy is made.
            table.forget_position(feed.source)
        self._change(feed, relation, planned, is_remembered=is_numbered)
        if needs_copy:
            return (*restored, *planned.told, f"its rows are copied again: {why}")
        if is_followed and target.type is TableType.HISTORY:
            what = f"versions that are open show what they showed ({why})"
            return (*restored, *planned.told, f"{what}: kuvasz resync --table {table.name} begins new ones")
        if is_followed:
            return (*restored, *planned.told, f"rows that are there stay as they are: {why}")
        return (*restored, *planned.told)

    def _refuse_other_rows(self, target: Target, planned: evolution.Evolution, place: str, *, has_rows: bool) -> None:
        """Refuse what makes other rows of those that a table keeps for good.

        Raises:
            SchemaError: It does.
        """
        resync = f"kuvasz resync --table {self._table.name}"
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
        if target.type is TableType.HISTORY and planned.has_other_key_values:
            # Versions that are open would never be found by their keys again, and never end.
            message = f"{place}: {planned.why_copy}, and rows are identified by it"
            raise SchemaError(message, hint=f"{resync} ends their versions and begins new ones")

    def check(self, feed: Feed, relation: Relation) -> None:
        """Refuse a source table that changed in a way that this table has not followed yet.

        Raises:
            SchemaError: It has.
        """
        planned, _, _ = self._plan_for(self._table.target, feed, relation)
        if planned.is_change or planned.steps or planned.why_copy:
            what = "; ".join(planned.told) or planned.why_copy or "the lake lacks some of its columns"
            raise SchemaError(f"{_place(feed)}: {what}", hint="let kuvasz run until it has followed, then compare")

    def _plan_for(self, target: Target, feed: Feed, relation: Relation) -> tuple[evolution.Evolution, Relation, bool]:
        """Return what is to be done for a source table, its relation as it counts, and whether to remember it."""
        table, known, place = self._table, self._known.get(feed.source), _place(feed)
        is_numbered = all(column.attnum for column in relation.columns)
        described, projection = relation, self._project(feed, relation)
        view = projection.relation
        others = frozenset(self._fields_of_others(feed.source))
        if target.set is None and is_numbered:
            relation = view
            planned = evolution.plan(
                target, table.schema, table.key, view, known, others, place,
                others_names=self._names_of_others(feed.source),
                takes_defaults=table.format_version >= _DEFAULT_FORMAT,
            )  # fmt: skip
        else:
            planned = evolution.plan(target, table.schema, table.key, _numbered(view), None, others, place)
            planned = evolution.by_name(planned, relation, known if is_numbered else None, place, table.name)
        if is_numbered:
            planned = planned.reading(target, described, projection.reads, known)
        return planned, relation, is_numbered

    def _fields_of_others(self, mine: str) -> Iterator[int]:
        for source, columns in self._known.items():
            for column in columns.live.values() if source != mine else ():
                field = self._field_of(column)
                if field is not None:
                    yield field

    def _names_of_others(self, mine: str) -> dict[str, frozenset[int]]:
        """Return name of a column of another source -> the fields that it fills."""
        found: dict[str, set[int]] = {}
        for source, columns in self._known.items():
            for column in columns.live.values() if source != mine else ():
                found.setdefault(column.name, set()).add(self._field_of(column) or 0)
        return {name: frozenset(fields) for name, fields in found.items()}

    def _field_of(self, column: KnownColumn) -> int | None:
        if column.is_bound:
            return column.field or None
        field = self._table.schema.by_name(column.name)
        return None if field is None else field.field_id

    def _check_dropped(self, planned: evolution.Evolution) -> None:
        table = self._table
        earlier = table.table.earlier_columns() if planned.added else {}
        for name in sorted(set(planned.added.values()) & earlier.keys()):
            if earlier[name] is not None and table.target.set is not None:  # else it is ours that was renamed
                raise self._changed_by_another(name, earlier[name])
        dropped = {name for name in planned.added.values() if earlier.get(name, name) is None}
        if dropped:
            message = f"table {table.name}: column {', '.join(sorted(dropped))} was dropped in the lake"
            hint = f"added anew it would be empty: copy the table again: kuvasz resync --table {table.name}"
            raise SchemaError(message, hint=hint)

    def _change(self, feed: Feed, relation: Relation, planned: evolution.Evolution, *, is_remembered: bool) -> None:
        """Change schema and properties in one commit, if they change."""
        table = self._table
        before, position = self._known.get(feed.source), table.positions.get(feed.source)
        from_lsn = None if position is None else position.lsn
        remembered: list[SourceColumns] = []

        def properties(schema: LakeSchema) -> dict[str, str]:
            remembered.append(planned.columns(relation, schema, before, from_lsn))
            if (remembered[-1] == before and planned.key == table.key) or not is_remembered:
                return {}
            return {
                known_columns.PREFIX + feed.source: remembered[-1].render(),
                **table_identity.render_key(planned.key),
            }

        if planned.steps:
            table.table.change_schema(planned.steps, properties)
        elif values := properties(table.schema):
            table.table.set_properties(values)
        with table.definition:
            if is_remembered:
                self._known[feed.source] = remembered[-1]
            table.reload_schema(planned.key)

    # The lake's side changed

    def follow(self) -> None:
        """Take over a schema that someone else changed in the lake, if every column of ours is still there.

        Raises:
            SchemaError: It is not.
        """
        fresh = {field.field_id: field for field in self._table.table.schema().fields}
        for field in self._table.schema.fields:
            found = fresh.get(field.field_id)
            if found is None or found.name != field.name:
                raise self._changed_by_another(field.name, None if found is None else found.name)
        self._table.reload_schema()

    def _see_schema(self, feed: Feed) -> tuple[str, ...]:
        """Read the lake's columns, for someone else may have changed them; return what was put right.

        A source that is to be copied gets the names back; for one that goes on from its position nobody knows what
        the other one wants.

        Raises:
            SchemaError: A column of ours has another name, or is gone.
        """
        table = self._table
        table.table.refresh()
        is_same = table.table.schema_id == table.schema.schema_id
        found = evolution.strays(table.schema if is_same else table.table.schema(), self._known, feed.source)
        if feed.source in table.positions:
            for name, now in found.items():
                raise self._changed_by_another(name, now)
        if not is_same:
            table.reload_schema()
        renamed = {name: now for name, now in found.items() if now is not None and not table.schema.by_name(name)}
        if renamed:
            steps = [evolution.RenameField(now, name) for name, now in renamed.items()]
            table.table.change_schema(steps, lambda _: {})
            table.reload_schema()
        return tuple(f"column {now} of the lake is named {name} again" for name, now in renamed.items())

    def _changed_by_another(self, name: str, now: str | None) -> SchemaError:
        what = "dropped" if now is None else f"renamed to {now}"
        hint = f"copy the table again: kuvasz resync --table {self._table.name}"
        if now is not None:
            hint = f"give it its name back, and then: kuvasz retry --table {self._table.name}; or {hint}"
        message = f"table {self._table.name}: column {name} was {what} in the lake by someone else"
        return SchemaError(message, hint=hint)


def _named_as_now(relation: Relation, known: SourceColumns | None) -> Relation:
    """Return a relation of any time with the names that its columns have now, which are those the map goes by."""
    if known is None or not all(column.attnum for column in relation.columns):
        return relation
    names = {column.number: column.name for column in known.live.values()}
    taken = set(names.values())
    return dataclasses.replace(
        relation,
        columns=tuple(
            # Another column has the name by now: this one is not meant by it.
            dataclasses.replace(
                one, name=names.get(one.attnum, f"{one.name} before" if one.name in taken else one.name)
            )
            for one in relation.columns
        ),
    )


def _numbered(relation: Relation) -> Relation:
    """Return a relation of which only names are known with numbers that mean nothing."""
    columns = tuple(dataclasses.replace(column, attnum=place) for place, column in enumerate(relation.columns, 1))
    return dataclasses.replace(relation, columns=columns)


def _not_followed(target: Target, feed: Feed, told: Sequence[str]) -> SchemaError:
    message = f"{_place(feed)}: {'; '.join(told)}"
    if target.on_schema_change == "hold":
        hint = (
            f"the map says `on_schema_change: hold`, and its changes are kept: to follow,"
            f" kuvasz retry --table {target.name}"
        )
        return SchemaHeld(message, hint=hint)
    return SchemaError(message, hint="the map says `on_schema_change: stop`: set it to `evolve`, or change it back")


def _place(feed: Feed) -> str:
    return f"source {feed.source}, table {feed.table}"
