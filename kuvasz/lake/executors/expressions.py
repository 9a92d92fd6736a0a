"""The map's Spark SQL: parsed and checked against a source table's columns before the first row comes.

Enters: a target and a relation. Leaves: a `Projection`: how the relation looks from the lake, and the `Transform`
that its rows go through. A bare column name in `set` needs no Spark: the column travels as it would without `set`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as spark_types

from kuvasz import typemap
from kuvasz.config.problem import suggestion
from kuvasz.errors import ExpressionRefused, LakeError, OptionRefused
from kuvasz.lake.format.schema import source_type, typed
from kuvasz.model import Column, LakeType, PgType, Relation, ReplicaIdentity, TableType, ValueType
from kuvasz.modes.row_rules import Computed, Input, Transform, readable
from kuvasz.modes.shape import COMPUTED, Binding, Shape
from kuvasz.ports import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: PySpark tells of every expression that it refuses, in JSON on stderr; we tell it ourselves.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

_TEXT = typemap.BUILTIN[25]

#: Types of results -> the PostgreSQL type that becomes the same in the lake.
_RESULTS: Mapping[type[spark_types.DataType], PgType] = {
    spark_types.BooleanType: typemap.BUILTIN[16],
    spark_types.ByteType: typemap.BUILTIN[21],
    spark_types.ShortType: typemap.BUILTIN[21],
    spark_types.IntegerType: typemap.BUILTIN[23],
    spark_types.LongType: typemap.BUILTIN[20],
    spark_types.FloatType: typemap.BUILTIN[700],
    spark_types.DoubleType: typemap.BUILTIN[701],
    spark_types.StringType: _TEXT,
    spark_types.BinaryType: typemap.BUILTIN[17],
    spark_types.DateType: typemap.BUILTIN[1082],
    spark_types.TimestampNTZType: typemap.BUILTIN[1114],
    spark_types.TimestampType: typemap.BUILTIN[1184],
}
_NUMERIC = typemap.BUILTIN[1700]
_HSTORE = PgType(oid=0, name="hstore", schema="public")

_KINDS: Mapping[LakeType, spark_types.DataType] = {
    LakeType.BOOLEAN: spark_types.BooleanType(),
    LakeType.INT: spark_types.IntegerType(),
    LakeType.LONG: spark_types.LongType(),
    LakeType.FLOAT: spark_types.FloatType(),
    LakeType.DOUBLE: spark_types.DoubleType(),
    LakeType.STRING: spark_types.StringType(),
    LakeType.BINARY: spark_types.BinaryType(),
    LakeType.DATE: spark_types.DateType(),
    LakeType.TIMESTAMP: spark_types.TimestampNTZType(),
    LakeType.TIMESTAMPTZ: spark_types.TimestampType(),
    LakeType.UUID: spark_types.StringType(),
    LakeType.MAP: spark_types.MapType(spark_types.StringType(), spark_types.StringType()),
}


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


def spark_type(value_type: ValueType) -> spark_types.DataType:
    """Return the Spark type in which expressions see a column."""
    if value_type.kind is LakeType.DECIMAL:
        return spark_types.DecimalType(value_type.precision, value_type.scale)
    if value_type.kind is LakeType.LIST:
        assert value_type.element is not None
        return spark_types.ArrayType(spark_type(value_type.element))
    return _KINDS[value_type.kind]


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
            key: Of the lake table, if there is one: with REPLICA IDENTITY FULL the stream calls every column a key.

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
        self._session = session
        self._key = key
        self._target = target
        self._relation = relation
        self._place = place
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
            bare: int | None = number if text is None else self._bare(text)
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
            identity=tuple(n for n, column in enumerate(self._relation.columns) if column.is_key),
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

    def _bare(self, text: str) -> int | None:
        expression = self._parse(text, "set")
        if expression.getClass().getSimpleName() != "UnresolvedAttribute":
            return None
        return self._column(_name(expression), text, "set")

    def _compute(self, name: str, text: str) -> Column:
        option = f"set.{name}"
        inputs = self._references(text, option)
        numbers = tuple(self._number(index) for index in inputs)
        result = self._analyze(text, option, inputs)
        pg_type, typmod = self._result(result, text, option)
        kind = typemap.value_type(pg_type, typmod)
        self._computed.append(Computed(name=name, text=text, inputs=numbers, type=kind))
        return Column(name=name, pg_type=pg_type, typmod=typmod)

    def _check_filter(self, text: str) -> tuple[int, ...]:
        inputs = self._references(text, "filter")
        numbers = tuple(self._number(index) for index in inputs)
        result = self._analyze(text, "filter", inputs)
        if not isinstance(result, (spark_types.BooleanType, spark_types.NullType)):
            raise self._refused("filter", text, f"is {result.simpleString()}, not a condition")
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
                f"{self._target.place or self._place}: expressions name the columns {alike[0]!r} and {name!r}, which"
                " Spark SQL takes for one"
            )
            raise ExpressionRefused(message, hint="name one of them alone, or rename one at the source", option="set")

    # Spark

    def _parse(self, text: str, option: str) -> Any:  # noqa: ANN401 (a Java object)
        session: Any = self._session
        try:
            return session._jsparkSession.sessionState().sqlParser().parseExpression(text)
        except PySparkException as error:
            raise self._refused(option, text, _first_line(error)) from error
        except Py4JError as error:
            raise LakeError(f"spark does not answer: {error}", hint="it is tried again") from error

    def _references(self, text: str, option: str) -> list[int]:
        expression = self._parse(text, option)
        leaves = expression.collectLeaves()
        found = []
        lambdas = set()
        for index in range(leaves.size()):
            leaf = leaves.apply(index)
            kind = leaf.getClass().getSimpleName()
            if kind == "UnresolvedNamedLambdaVariable":
                # Within a lambda every name looks like its variable; those that are columns are taken as such.
                lambdas.add(_name(leaf))
            elif kind == "UnresolvedAttribute":
                found.append(self._column(_name(leaf), text, option))
            elif "Subquery" in kind or kind in {"Exists", "UnresolvedStar"}:
                raise self._refused(option, text, "looks at more than one row")
        found += [place for name in sorted(lambdas) if (place := self._find(name)) is not None]
        return sorted(set(found))

    def _find(self, name: str) -> int | None:
        names = [column.name for column in self._relation.columns]
        if name in names:
            return names.index(name)
        alike = [index for index, known in enumerate(names) if known.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None

    def _column(self, name: str, text: str, option: str) -> int:
        found = self._find(name)
        if found is None:
            guess = suggestion(name, [column.name for column in self._relation.columns])
            raise self._refused(option, text, f"names a column {name!r} that the table does not have{guess}")
        return found

    def _analyze(self, text: str, option: str, inputs: list[int]) -> spark_types.DataType:
        """Return the type of an expression's result."""
        fields = [
            spark_types.StructField(
                self._relation.columns[index].name,
                spark_type(readable(source_type(self._relation.columns[index]))),
            )
            for index in inputs
        ]
        try:
            empty = self._session.createDataFrame([], spark_types.StructType(fields))
            frame = empty.selectExpr(f"({text}) AS result")
            self._check_rowwise(frame, text, option)
            return frame.schema.fields[0].dataType
        except PySparkException as error:
            raise self._refused(option, text, _first_line(error)) from error
        except Py4JError as error:
            raise LakeError(f"spark does not answer: {error}", hint="it is tried again") from error

    def _check_rowwise(self, frame: DataFrame, text: str, option: str) -> None:
        """Refuse what looks at more than its row, makes several of it, or gives another answer each time."""
        plan = frame._jdf.queryExecution().analyzed()
        child = plan.children().apply(0) if plan.children().size() else plan
        names = plan.getClass().getSimpleName(), child.getClass().getSimpleName()
        if names[0] != "Project" or names[1] in {"Aggregate", "Window", "Generate", "Project"}:
            raise self._refused(option, text, "does not give one value for each row")
        if not plan.deterministic():
            raise self._refused(option, text, "gives another value each time, so copy and stream would differ")

    def _result(self, kind: spark_types.DataType, text: str, option: str) -> tuple[PgType, int]:
        if isinstance(kind, spark_types.DecimalType):
            return _NUMERIC, (kind.precision << 16 | kind.scale) + 4
        if isinstance(kind, spark_types.ArrayType):
            element, typmod = self._result(kind.elementType, text, option)
            return PgType(oid=0, name=f"_{element.name}", element=element), typmod
        if isinstance(kind, spark_types.MapType) and all(
            isinstance(part, spark_types.StringType) for part in (kind.keyType, kind.valueType)
        ):
            return _HSTORE, -1
        for candidate, pg_type in _RESULTS.items():
            if isinstance(kind, candidate):
                return pg_type, -1
        what = "gives only NULL" if isinstance(kind, spark_types.NullType) else f"gives {kind.simpleString()}"
        raise self._refused(option, text, f"{what}, which has no column in the lake: CAST it")

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
        message = f"{self._target.place or self._place}: `set` leaves out {name}, which is part of the table's key"
        hint = "add it as it is, or name the columns of `set` that identify a row with `key: […]`"
        raise ExpressionRefused(message, hint=hint, option="set")

    def _masked(self, columns: list[Column], origins: list[int]) -> list[Column]:
        names = [column.name for column in columns]
        for name in self._target.mask:
            if name not in names:
                message = f"{self._target.place or self._place}: `mask` names a column {name!r} that is not there"
                raise ExpressionRefused(f"{message}{suggestion(name, names)}", hint="see its spelling", option="mask")
        out = []
        for column, origin in zip(columns, origins, strict=True):
            if column.name not in self._target.mask:
                out.append(column)
                continue
            if self._target.mask[column.name] == "redact" and self._is_key(column):
                message = (
                    f"{self._target.place or self._place}: `mask` redacts {column.name}, which identifies the rows:"
                    " all of them would be one"
                )
                raise OptionRefused(message, hint="hmac keeps rows apart", option=f"mask.{column.name}")
            if origin <= COMPUTED and column.pg_type is not _TEXT:
                message = (
                    f"{self._target.place or self._place}: `mask` hides texts, and `set.{column.name}` gives none"
                )
                raise ExpressionRefused(message, hint="CAST it to string in `set`", option="mask")
            out.append(dataclasses.replace(column, pg_type=_TEXT, typmod=-1, is_grid=False, asked=""))
        return out

    def _is_key(self, column: Column) -> bool:
        """Whether a column identifies rows; with REPLICA IDENTITY FULL the stream says so of every one."""
        is_said_of_all = all(one.is_key for one in self._relation.columns)
        if self._relation.identity is ReplicaIdentity.FULL and is_said_of_all and self._key is not None:
            return column.name in self._key
        return column.is_key

    def _refused(self, option: str, text: str, why: str) -> ExpressionRefused:
        message = f"{self._target.place or self._place}, {option}: {text!r} {why}"
        hint = "expressions are Spark SQL over the source table's columns; see docs/configuration.md"
        return ExpressionRefused(message, hint=hint, option=option)


def _name(attribute: Any) -> str:  # noqa: ANN401 (a Java object)
    parts = attribute.nameParts()
    return ".".join(str(parts.apply(index)) for index in range(parts.size()))


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line[:300]


__all__ = ["Expressions", "Projection", "spark_type"]
