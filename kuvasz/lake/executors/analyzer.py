"""What Spark's parser and analyzer say of an expression over the columns of a source table."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as spark_types

from kuvasz import typemap
from kuvasz.config.problem import suggestion
from kuvasz.errors import ExpressionRefused, LakeError
from kuvasz.lake.format.schema import source_type
from kuvasz.model import LakeType, PgType, Relation, ValueType
from kuvasz.modes.row_rules import readable

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
_OF_SEVERAL = (spark_types.ArrayType, spark_types.MapType)  #: no columns are made for arrays of such
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


def spark_type(value_type: ValueType) -> spark_types.DataType:
    """Return the Spark type in which expressions see a column."""
    if value_type.kind is LakeType.DECIMAL:
        return spark_types.DecimalType(value_type.precision, value_type.scale)
    if value_type.kind is LakeType.LIST:
        assert value_type.element is not None
        return spark_types.ArrayType(spark_type(value_type.element))
    return _KINDS[value_type.kind]


class Analyzer:
    """The analyzer of one source table's expressions.

    Args:
        session: A running Spark.
        relation: The source table.
        place: Where the map has the expressions, for messages.

    Raises, each method of it:
        ExpressionRefused: An expression cannot be evaluated over these columns.
        LakeError: Spark does not answer.
    """

    def __init__(self, session: SparkSession, relation: Relation, place: str) -> None:
        self._session = session
        self._relation = relation
        self._place = place

    def bare(self, text: str, option: str) -> int | None:
        """Return the index of the column that an expression names, if it is nothing but a name."""
        expression = self._parse(text, option)
        if expression.getClass().getSimpleName() != "UnresolvedAttribute":
            return None
        return self._column(_name(expression), text, option)

    def _parse(self, text: str, option: str) -> Any:  # noqa: ANN401 (a Java object)
        session: Any = self._session
        try:
            return session._jsparkSession.sessionState().sqlParser().parseExpression(text)
        except PySparkException as error:
            raise self.refused(option, text, _first_line(error)) from error
        except Py4JError as error:
            raise LakeError(f"spark does not answer: {error}", hint="it is tried again") from error

    def references(self, text: str, option: str) -> list[int]:
        """Return the indexes of the columns that an expression looks at."""
        expression = self._parse(text, option)
        self._check_functions(expression, text, option)
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
                raise self.refused(option, text, "looks at more than one row")
        found += [place for name in sorted(lambdas) if (place := self._find(name)) is not None]
        return sorted(set(found))

    def _check_functions(self, expression: Any, text: str, option: str) -> None:  # noqa: ANN401 (a Java object)
        """Refuse functions of others: what they do, and to whom, is not the map's to say, and they may change."""
        catalyst: Any = self._session._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
        own = getattr(getattr(catalyst.analysis, "FunctionRegistry$"), "MODULE$").builtin()
        for name in _functions(expression, catalyst.trees.TreePattern.UNRESOLVED_FUNCTION()):
            if not own.functionExists(catalyst.FunctionIdentifier(name)):
                raise self.refused(option, text, f"calls {name}, which is no function of Spark itself")

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
            raise self.refused(option, text, f"names a column {name!r} that the table does not have{guess}")
        return found

    def type_of(self, text: str, option: str, inputs: list[int]) -> spark_types.DataType:
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
            raise self.refused(option, text, _first_line(error)) from error
        except Py4JError as error:
            raise LakeError(f"spark does not answer: {error}", hint="it is tried again") from error

    def _check_rowwise(self, frame: DataFrame, text: str, option: str) -> None:
        """Refuse what looks at more than its row, makes several of it, or gives another answer each time."""
        plan = frame._jdf.queryExecution().analyzed()
        child = plan.children().apply(0) if plan.children().size() else plan
        names = plan.getClass().getSimpleName(), child.getClass().getSimpleName()
        if names[0] != "Project" or names[1] in {"Aggregate", "Window", "Generate", "Project"}:
            raise self.refused(option, text, "does not give one value for each row")
        patterns: Any = self._session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]
        # The time and the user of now are the same for all rows of a query, so Spark calls them deterministic.
        if not plan.deterministic() or plan.containsPattern(patterns.CURRENT_LIKE()):
            raise self.refused(option, text, "gives another value each time, so copy and stream would differ")
        if plan.containsPattern(patterns.SCALA_UDF()) or plan.containsPattern(patterns.PYTHON_UDF()):
            raise self.refused(option, text, "calls a function that stands in the place of one of Spark itself")

    def result(self, kind: spark_types.DataType, text: str, option: str) -> tuple[PgType, int]:
        """Return the PostgreSQL type, with its modifier, that becomes in the lake what an expression gives."""
        if isinstance(kind, spark_types.DecimalType):
            return _NUMERIC, (kind.precision << 16 | kind.scale) + 4
        if isinstance(kind, spark_types.ArrayType) and not isinstance(kind.elementType, _OF_SEVERAL):
            element, typmod = self.result(kind.elementType, text, option)
            return PgType(oid=0, name=f"_{element.name}", element=element), typmod
        if isinstance(kind, spark_types.MapType) and all(
            isinstance(part, spark_types.StringType) for part in (kind.keyType, kind.valueType)
        ):
            return _HSTORE, -1
        for candidate, pg_type in _RESULTS.items():
            if isinstance(kind, candidate):
                return pg_type, -1
        what = "gives only NULL" if isinstance(kind, spark_types.NullType) else f"gives {kind.simpleString()}"
        raise self.refused(option, text, f"{what}, which has no column in the lake: CAST it")

    def refused(self, option: str, text: str, why: str) -> ExpressionRefused:
        """Return the error of an expression that cannot be."""
        message = f"{self._place}, {option}: {text!r} {why}"
        hint = "expressions are Spark SQL over the source table's columns; see docs/configuration.md"
        return ExpressionRefused(message, hint=hint, option=option)


def _functions(expression: Any, pattern: Any) -> Iterator[str]:  # noqa: ANN401 (Java objects)
    """Yield the names of functions that an expression calls, as they are written; `pattern` is what marks them."""
    if not expression.containsPattern(pattern):
        return  # each answer of the JVM takes as long as what it saves, and each source asks
    if expression.getClass().getSimpleName() == "UnresolvedFunction":
        yield _name(expression)
    children = expression.children()
    for index in range(children.size()):
        yield from _functions(children.apply(index), pattern)


def _name(attribute: Any) -> str:  # noqa: ANN401 (a Java object)
    parts = attribute.nameParts()
    return ".".join(str(parts.apply(index)) for index in range(parts.size()))


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line[:300]


__all__ = ["Analyzer", "spark_type"]
