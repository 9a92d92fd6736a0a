"""How the columns of a source's relations meet the fields of a lake table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kuvasz.errors import SchemaError, resync_of
from kuvasz.lake.format import member, planning
from kuvasz.lake.format.binding import NO_FIELDS, bind
from kuvasz.model import TableName
from kuvasz.modes import veil

if TYPE_CHECKING:
    from kuvasz.evolve.known import SourceColumns
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.definition.known_sources import KnownSources
    from kuvasz.lake.executors.expressions import Expressions, Projection
    from kuvasz.model import Relation
    from kuvasz.modes.shape import Binding, Shape
    from kuvasz.ports import Feed, Target


_NO_TABLE = TableName(schema="", name="")


class Shapes:
    """The shapes of one table, each worked out once.

    Args:
        definition: The table's.
        known: What is known of its sources' columns.
        expressions: Checks those of the map.
    """

    def __init__(self, definition: Definition, known: KnownSources, expressions: Expressions) -> None:
        self._definition = definition
        self._known = known
        self._expressions = expressions
        self._targets: dict[str, Target] = {}  #: source -> what the map says for it; see `target_of`
        self._bindings: dict[tuple[Binding, ...], tuple[Binding, ...]] = {}  #: each once, whose sources are alike
        self._mixed: dict[str, tuple[bool, bool]] = {}  #: source -> as `mix` was told
        self._cached: dict[tuple[str, Relation], Shape] = {}
        self._last: dict[str, tuple[Relation, Shape]] = {}  # by source: to hash a relation takes longer than all else
        self._kinds: list[tuple[Shape, Shape]] = []  # nobody's, and the first one of that kind
        self._kind_of: dict[int, Shape] = {}  # id of a shape in `_cached` -> the first one of its kind

    def forget(self) -> None:
        """Have shapes worked out anew, for the schema or the key is another one."""
        self._cached.clear()
        self._bindings.clear()
        self._last.clear()
        self._kinds.clear()
        self._kind_of.clear()

    def target_of(self, source: str) -> Target:
        """Return what the map says of the table for one source: groups that share it may have rules of their own."""
        return self._targets.get(source, self._definition.target)

    @property
    def want_facts(self) -> bool:
        """Whether rows of any source are left out that do not fit, or stay when they are deleted."""
        targets = (self._definition.target, *self._targets.copy().values())
        return any(target.rejects or target.is_soft for target in targets)

    def go_by(self, source: str, target: Target) -> None:
        """Go by what the map says of the table for a source from now on."""
        with self._definition.lock:
            if target != self.target_of(source):
                self._targets[source] = target
                self.forget()  # all of them: kinds are known by ids, which may be another shape's by then

    def mix(self, source: str, *, is_mixed: bool, lacks_rows: bool = False) -> None:
        """Know from now on what a source's rows that are here say of the next ones.

        Args:
            source: The source.
            is_mixed: Values of some are made by another rule of the map.
            lacks_rows: Some are missing.
        """
        with self._definition.lock:
            if (is_mixed, lacks_rows) != self._mixed.get(source, (False, False)):
                self._mixed[source] = is_mixed, lacks_rows
                self.forget()

    def of(self, feed: Feed, relation: Relation) -> Shape:
        """Return how a relation's columns meet the table's fields.

        Raises:
            SchemaError: The table cannot hold them.
        """
        with self._definition.lock:
            last = self._last.get(feed.source)
            if last is not None and last[0] is relation:
                return last[1]
            cached = self._cached.get((feed.source, relation))
            if cached is None:
                cached = self._cached[feed.source, relation] = self._shape(feed, relation)
            self._last[feed.source] = relation, cached
            return cached

    def alike(self, shape: Shape) -> Shape:
        """Return the first of the shapes, got by `of`, that differ from one in nothing but whose rows they are of."""
        found = self._kind_of.get(id(shape))
        if found is None:
            nobodys = dataclasses.replace(shape, source="", table=_NO_TABLE, sid=None)
            found = next((first for kind, first in self._kinds if kind == nobodys), None)
            if found is None:
                self._kinds.append((nobodys, found := shape))
            self._kind_of[id(shape)] = found
        return found

    def of_now(self, feed: Feed, relation: Relation) -> Shape:
        """Return the same for a message of a table that is just as it was followed last.

        Raises:
            SchemaError: It was not, at the message's time.
        """
        known = self._known.get(feed.source)
        if known is None:
            return self.of(feed, relation)
        sent = known.sent
        if [(column.name, column.pg_type.oid) for column in relation.columns] != [face[1:] for face in sent]:
            message = f"{feed.place}: its columns were others a while ago"
            raise SchemaError(message, hint="compare again when kuvasz has applied what came before")
        columns = tuple(
            dataclasses.replace(column, attnum=number)
            for column, (number, _, _) in zip(relation.columns, sent, strict=True)
        )
        return self.of(feed, dataclasses.replace(relation, columns=columns))

    def _shape(self, feed: Feed, relation: Relation) -> Shape:
        table = self._definition
        known = self._known.get(feed.source)
        if known is not None and known.oid != relation.oid:
            planning.refuse_another(known, relation, feed.place, table.name)
        if known is not None and not all(column.attnum for column in relation.columns):
            # The names alone say nothing: those of a message may be of another time.
            message = f"{feed.place}: which of its columns a message means was not found out"
            raise SchemaError(message, hint=f"copy the table again: {resync_of(table.name)}")
        fields = NO_FIELDS if known is None else known.fields
        target, view = self.target_of(feed.source), self.view(feed, relation)
        live = frozenset() if known is None else frozenset(column.field for column in known.live.values())
        seed = member.seed(table.seed, member.of(feed.source))
        left = {} if known is None else known.left
        defaulted = frozenset() if known is None else known.defaulted
        older = frozenset() if known is None else known.older(relation)
        bound = bind(target, table.schema, table.key, seed, feed, view.relation, fields, live, left, defaulted, older)
        if target.has_members:
            bound = dataclasses.replace(bound, family=table.seed)
        found = veil.unveil(view.apply(bound, relation), relation, table.name)
        is_mixed, lacks_rows = self._mixed.get(feed.source, (False, False))
        if is_mixed or lacks_rows:
            found = _mixed(found, is_mixed=is_mixed, lacks_rows=lacks_rows)
        return dataclasses.replace(found, bindings=self._bindings.setdefault(found.bindings, found.bindings))

    def view(self, feed: Feed, relation: Relation) -> Projection:
        """Return how a message looks from this table, under the names that its columns have now.

        Args:
            feed: The source table.
            relation: The message's, of any time.

        Raises:
            ExpressionRefused: An expression of the map does not fit it.
        """
        target, known = self.target_of(feed.source), self._known.get(feed.source)
        is_named = target.filter is not None or target.set is not None or bool(target.mask or target.types)
        named = _named_as_now(relation, known) if is_named else relation
        if target.set is None and target.mask:
            target = dataclasses.replace(target, mask=_masks(target, named, known))
        return self._expressions.project(target, named, feed.place, self._definition.key)

    def project(self, feed: Feed, relation: Relation, key: tuple[str, ...] | None = None) -> Projection:
        """Return how a relation looks from this table.

        Args:
            feed: The source table.
            relation: The relation of a message, or that of the catalog.
            key: This table's key, for a message: with REPLICA IDENTITY FULL the stream calls every column a key.

        Raises:
            ExpressionRefused: An expression of the map does not fit it.
        """
        return self._expressions.project(self.target_of(feed.source), relation, feed.place, key)


def _mixed(shape: Shape, *, is_mixed: bool, lacks_rows: bool) -> Shape:
    """Return a shape of a source with rows that say little of the next ones; see `Shapes.mix`."""
    return dataclasses.replace(
        shape,
        bindings=tuple(
            dataclasses.replace(
                one, is_mixed=is_mixed and (one.mask is not None or one.computed is not None), is_past=lacks_rows
            )
            for one in shape.bindings
        ),
    )


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


def _masks(target: Target, relation: Relation, known: SourceColumns | None) -> dict[str, str]:
    """Return how a message's columns are hidden: one that is gone as it was, whoever has its name by now.

    Args:
        target: What the map says; all that it masks is there now.
        relation: The message's, as `_named_as_now` names it; it may lack what was added since.
        known: What is known of the source's columns.
    """
    found = {}
    for column in relation.columns:
        one = None if known is None else known.columns.get(column.attnum)
        names = (column.name,) if one is None or one.is_live else (column.name, *reversed(one.names))
        how = next((target.mask[name] for name in names if name in target.mask), None)
        if how is not None:
            found[column.name] = how
    return found


__all__ = ["Shapes"]
