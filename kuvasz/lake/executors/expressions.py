"""The map's Spark SQL: parsed and checked against a source table's columns before the first row comes.

Enters: a target and a relation. Leaves: a `Projection`: how the relation looks from the lake, and the `Transform`
that its rows go through. A bare column name in `set` needs no Spark: the column travels as it would without `set`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as spark_types

from kuvasz import typemap
from kuvasz.config.problem import suggestion
from kuvasz.errors import ExpressionRefused, OptionRefused
from kuvasz.lake.executors.analyzer import Analyzer
from kuvasz.lake.format.schema import source_type, typed
from kuvasz.model import Column, Relation, ReplicaIdentity, TableType
from kuvasz.modes.row_rules import Computed, Input, Transform, readable
from kuvasz.modes.shape import COMPUTED, Binding, Shape
from kuvasz.ports import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXT = typemap.BUILTIN[25]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """How a relation looks from its target."""

    relation: Relation  #: with the target's columns; those that are computed have a type that becomes the result's
    columns: tuple[int, ...]  #: per column of it: index into the source's columns, or `COMPUTED` and below
    transform: Transform | None  #: None: rows stay as they are
    reads: tuple[str, ...] = ()  #: names of the source's columns that `filter` and `set` look at
    mask: Mapping[str, str] = dataclasses.field(default_factory=dict)
    mask_secret: bytes = dataclasses.field(default=b"", repr=False)

    def apply(self, shape: Shape, source: Relation) -> Shape:
        """Return the shape of the source's own rows from that of the relation as the target sees it."""
        if self.transform is None and not self.mask:
            return shape
        return dataclasses.replace(
            shape,
            column_count=len(source.columns),
            bindings=tuple(self._binding(binding, source) for binding in shape.bindings),
            transform=self.transform if self.transform is not None and self.transform.needs_spark else None,
            mask_secret=self.mask_secret,
        )

    def _binding(self, binding: Binding, source: Relation) -> Binding:
        if binding.column < 0:
            return binding
        # By the source's name for it: the lake's may be that of another source, which renamed it first.
        masked = self.mask.get(self.relation.columns[binding.column].name)
        column = self.columns[binding.column]
        name = source.columns[column].name if column >= 0 else ""
        return dataclasses.replace(binding, column=column, mask=masked, source=name)


class Expressions:
    """Checks expressions with a session's own parser and analyzer.

    Args:
        session: A running Spark.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def project(
        self, target: Target, relation: Relation, place: str, key: tuple[str, ...] | None = None
    ) -> Projection:
        """Return how a relation looks from its target.

        Args:
            target: With the expressions.
            relation: The source table.
            place: Source and table, for messages.
            key: The lake table's key, if it has one: with REPLICA IDENTITY FULL the stream calls every column a key.

        Raises:
            ExpressionRefused: An expression cannot be evaluated over these columns, or the key is lost.
        """
        relation = typed(target, relation)
        if target.filter is None and target.set is None and not target.mask:
            columns = tuple(range(len(relation.columns)))
            return Projection(relation=relation, columns=columns, transform=None)
        if relation.identity is ReplicaIdentity.FULL and key is not None and target.set is not None:
            target = dataclasses.replace(target, key=key)
        return _Projecting(self._session, target, relation, place, key).projection()


class _Projecting:
    """One projection in the making."""

    def __init__(
        self, session: SparkSession, target: Target, relation: Relation, place: str, key: tuple[str, ...] | None
    ) -> None:
        self._analyzer = Analyzer(session, relation, target.place or place)
        self._key = key
        self._target = target
        self._relation = relation
        self._place = place
        self._mapped = target.place or place  #: where the map says so
        self._inputs: dict[int, Input] = {}
        self._computed: list[Computed] = []

    def projection(self) -> Projection:
        target = self._target
        texts: Mapping[str, str | None] = {column.name: None for column in self._relation.columns}
        if target.set is not None:
            texts = dict(target.set)
        columns: list[Column] = []
        origins: list[int] = []
        for number, (name, text) in enumerate(texts.items()):
            bare: int | None = number if text is None else self._analyzer.bare(text, "set")
            if bare is not None:
                source = self._relation.columns[bare]
                columns.append(dataclasses.replace(source, name=name))
                origins.append(bare)
            else:
                assert text is not None
                columns.append(self._compute(name, text))
                origins.append(COMPUTED - len(self._computed) + 1)
        filter_inputs = () if target.filter is None else self._check_filter(target.filter)
        columns = self._keyed(columns, origins)
        transform = Transform(
            place=self._place,
            inputs=tuple(self._inputs.values()),
            filter=target.filter,
            filter_inputs=filter_inputs,
            computed=tuple(self._computed),
            identity=self._telling(columns, origins),
            is_hidden=bool(target.mask) or not all(target.takes(item.name) for item in self._inputs.values()),
        )
        return Projection(
            relation=dataclasses.replace(self._relation, columns=tuple(self._masked(columns, origins))),
            columns=tuple(origins),
            transform=transform,
            reads=self._reads(origins),
            mask=target.mask,
            mask_secret=target.mask_secret,
        )

    def _reads(self, origins: Sequence[int]) -> tuple[str, ...]:
        read = {item.column for item in self._inputs.values()}
        if self._target.set is not None:
            read |= {origin for origin in origins if origin >= 0}
        return tuple(sorted(self._relation.columns[number].name for number in read))

    def _compute(self, name: str, text: str) -> Column:
        option = f"set.{name}"
        inputs = self._analyzer.references(text, option)
        numbers = tuple(self._number(index) for index in inputs)
        result = self._analyzer.type_of(text, option, inputs)
        pg_type, typmod = self._analyzer.result(result, text, option)
        kind = typemap.value_type(pg_type, typmod)
        self._computed.append(Computed(name=name, text=text, inputs=numbers, type=kind))
        return Column(name=name, pg_type=pg_type, typmod=typmod)

    def _check_filter(self, text: str) -> tuple[int, ...]:
        inputs = self._analyzer.references(text, "filter")
        numbers = tuple(self._number(index) for index in inputs)
        result = self._analyzer.type_of(text, "filter", inputs)
        if not isinstance(result, (spark_types.BooleanType, spark_types.NullType)):
            raise self._analyzer.refused("filter", text, f"is {result.simpleString()}, not a condition")
        return numbers

    def _number(self, column: int) -> int:
        """Return the place of a source column among the inputs."""
        if column not in self._inputs:
            self._check_alike(column)
            kind = readable(source_type(self._relation.columns[column]))
            self._inputs[column] = Input(name=self._relation.columns[column].name, column=column, type=kind)
        return list(self._inputs).index(column)

    def _check_alike(self, column: int) -> None:
        """Refuse a column that Spark, which does not look at case, takes for another one of the expressions."""
        name = self._relation.columns[column].name
        alike = [item.name for item in self._inputs.values() if item.name.lower() == name.lower()]
        if alike:
            message = (
                f"{self._mapped}: expressions name the columns {alike[0]!r} and {name!r}, which"
                " Spark SQL takes for one"
            )
            raise ExpressionRefused(message, hint="name one of them alone, or rename one at the source", option="set")

    # Key and masks

    def _keyed(self, columns: list[Column], origins: list[int]) -> list[Column]:
        """Mark the columns that identify a row in the target."""
        if self._target.set is None:
            return columns
        wanted = self._target.key
        if wanted is None:
            wanted = tuple(self._carrier(number, columns, origins) for number in self._identity())
        self._check_key(wanted, columns, origins)
        return [dataclasses.replace(column, is_key=column.name in wanted) for column in columns]

    def _telling(self, columns: Sequence[Column], origins: Sequence[int]) -> tuple[int, ...]:
        """Return the source's columns that tell rows apart, where the stream says so of all of them too."""
        found = tuple(self._identity())
        if not self._is_said_of_all or self._key is None:
            return found
        mine = [origin for column, origin in zip(columns, origins, strict=True) if column.name in self._key]
        if len(mine) < len(self._key):
            return found
        inputs = list(self._inputs.values())
        numbers = [
            [origin] if origin >= 0 else [inputs[i].column for i in self._computed[COMPUTED - origin].inputs]
            for origin in mine
        ]
        return tuple(sorted({number for some in numbers for number in some}))

    @property
    def _is_said_of_all(self) -> bool:
        """Whether every column is called a key, as with REPLICA IDENTITY FULL."""
        is_full = self._relation.identity is ReplicaIdentity.FULL
        return is_full and all(one.is_key for one in self._relation.columns)

    def _identity(self) -> list[int]:
        return [number for number, column in enumerate(self._relation.columns) if column.is_key]

    def _check_key(self, wanted: Sequence[str], columns: Sequence[Column], origins: Sequence[int]) -> None:
        """Refuse a key that a DELETE does not tell, because it is made of columns that its old row has not got."""
        target, identity = self._target, set(self._identity())
        is_grown = target.type in {TableType.APPEND, TableType.CHANGELOG}  # nothing is found by its key and replaced
        if is_grown or self._relation.identity is ReplicaIdentity.FULL or not identity:
            return
        inputs = list(self._inputs.values())
        for column, origin in zip(columns, origins, strict=True):
            read = {origin} if origin >= 0 else {inputs[i].column for i in self._computed[COMPUTED - origin].inputs}
            if column.name in wanted and not read <= identity:
                names = ", ".join(self._relation.columns[number].name for number in sorted(read - identity))
                message = (
                    f"{target.place or self._place}: `key` names {column.name}, which is made of {names}: a DELETE"
                    " does not carry it"
                )
                table = f"{self._relation.table}"
                hint = f"ALTER TABLE {table} REPLICA IDENTITY FULL makes it carry all; or name columns of its own key"
                raise ExpressionRefused(message, hint=hint, option="key")

    def _carrier(self, number: int, columns: list[Column], origins: list[int]) -> str:
        for column, origin in zip(columns, origins, strict=True):
            if origin == number:
                return column.name
        name = self._relation.columns[number].name
        message = f"{self._mapped}: `set` leaves out {name}, which is part of the table's key"
        hint = "add it as it is, or name the columns of `set` that identify a row with `key: […]`"
        raise ExpressionRefused(message, hint=hint, option="set")

    def _masked(self, columns: list[Column], origins: list[int]) -> list[Column]:
        names = [column.name for column in columns]
        for name in self._target.mask:
            if name not in names:
                message = f"{self._mapped}: `mask` names a column {name!r} that is not there"
                raise ExpressionRefused(f"{message}{suggestion(name, names)}", hint="see its spelling", option="mask")
        out = []
        for column, origin in zip(columns, origins, strict=True):
            if column.name not in self._target.mask:
                out.append(column)
                continue
            if self._target.mask[column.name] == "redact" and self._is_key(column):
                message = (
                    f"{self._mapped}: `mask` redacts {column.name}, which identifies the rows:"
                    " all of them would be one"
                )
                raise OptionRefused(message, hint="hmac keeps rows apart", option=f"mask.{column.name}")
            if origin <= COMPUTED and column.pg_type is not _TEXT:
                message = f"{self._mapped}: `mask` hides texts, and `set.{column.name}` gives none"
                raise ExpressionRefused(message, hint="CAST it to string in `set`", option="mask")
            out.append(dataclasses.replace(column, pg_type=_TEXT, typmod=-1, is_grid=False, asked=""))
        return out

    def _is_key(self, column: Column) -> bool:
        """Whether a column identifies rows; with REPLICA IDENTITY FULL the stream says so of every one."""
        if self._is_said_of_all and self._key is not None:
            return column.name in self._key
        return column.is_key


__all__ = ["Expressions", "Projection"]
