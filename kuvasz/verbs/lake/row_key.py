"""The key of a row as a person gives it: texts that become values of the lake's columns. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, EqualTo, IsNaN, Reference
from pyiceberg.expressions.literals import AboveMax, BelowMin, FloatLiteral, literal
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
)

from kuvasz.errors import ConfigError, place_of
from kuvasz.lake.files.row_search import is_nan
from kuvasz.lake.format.schema import SID, LakeSchema, arrow_field

if TYPE_CHECKING:
    from kuvasz.evolve.known import SourceColumns

_BYTES = "\\x"

#: The type char(n), and what its modifier has beside n (PostgreSQL's `VARHDRSZ`).
_BPCHAR: Final = 1042
_TYPMOD_BEGIN: Final = 4

#: Of which PyIceberg makes the same integer; of others, as 7.9, it makes another one.
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowKey:
    """What tells the rows that are meant from the others of a lake table."""

    texts: Mapping[str, str]  #: column -> value, as they were given but for blanks of char(n), without sid
    fields: tuple[pa.Field, ...]  #: of the lake, sid among them if it is one of what tells them
    kinds: tuple[IcebergType, ...]  #: one for each
    values: tuple[pa.Scalar, ...]  #: one for each; NULL: the text is no value of it, and no row of the lake has it
    condition: BooleanExpression  #: the same for Iceberg
    #: column -> what it was called before
    earlier: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)

    @property
    def is_misfit(self) -> bool:
        """Whether no row of the lake can have it."""
        return not all(value.is_valid for value in self.values)

    def is_of(self, texts: Mapping[str, str | None]) -> bool:
        """Whether a row has this key, sid aside: a value has many texts, and a person may give another one.

        What was written down before a column was renamed has the name of then.

        Args:
            texts: Column -> value as PostgreSQL prints it in the time zone UTC.
        """
        return all(self._told(texts))

    def may_be_of(self, texts: Mapping[str, str | None]) -> bool:
        """Whether a row may have this key, sid aside, though its texts do not tell all of it.

        Args:
            texts: As for `is_of`; what nobody knows of it is absent, or a text that was cut.
        """
        told = list(self._told(texts))
        return None in told and False not in told

    def _told(self, texts: Mapping[str, str | None]) -> Iterator[bool | None]:
        """Yield of each column of the key whether texts have its value; None: they do not tell."""
        for field, kind, value in zip(self.fields, self.kinds, self.values, strict=True):
            given = self.texts.get(field.name)
            names = [name for name in (field.name, *self.earlier.get(field.name, ())) if name in texts]
            if given is None:  # sid
                continue
            if any(_is_value(texts[name], given, field, kind, value) for name in names):
                yield True
            else:
                yield None if not names or any(_is_begin(texts[name], given) for name in names) else False


def widths(known: Iterable[SourceColumns], schema: LakeSchema) -> dict[str, int]:
    """Return the columns whose values have blanks at their end, up to a number of characters: those of type char(n).

    Args:
        known: The columns of each source of a table. Where sources differ, nothing is known.
        schema: The table's columns.
    """
    found: dict[int, set[int]] = {}
    for column in (column for source in known for column in source.live.values()):
        is_padded = column.type_oid == _BPCHAR and column.typmod > _TYPMOD_BEGIN
        found.setdefault(column.field, set()).add(column.typmod - _TYPMOD_BEGIN if is_padded else 0)
    told = {field.name: found.get(field.field_id, set()) for field in schema.fields}
    return {name: max(some) for name, some in told.items() if len(some) == 1 and max(some)}


def earlier_names(schemas: Iterable[Schema], schema: LakeSchema) -> dict[str, set[str]]:
    """Return column -> what it was called before, of those that were called otherwise.

    Args:
        schemas: All that a table has had.
        schema: The one that it has.
    """
    found = {field.name: {name for one in schemas if (name := one.find_column_name(field.field_id))} - {field.name}
             for field in schema.fields}  # fmt: skip
    return {name: some for name, some in found.items() if some}


def parse(
    given: Sequence[str],
    sid: str | None,
    key: Sequence[str],
    lake: tuple[LakeSchema, Schema],
    table: str,
    padded: Mapping[str, int] = MappingProxyType({}),
    *,
    takes_misfits: bool = False,
) -> RowKey:
    """Return the key that a person gave.

    Args:
        given: A value for each column of the key, in the key's order, or ``column=value`` in any order.
        sid: The sid of the rows; None: of any source.
        key: The columns of the table's key, without sid; of a table that has none, any of its columns may be given.
        lake: The table's columns, as kuvasz and as PyIceberg have them.
        table: Its name, for messages.
        padded: See `widths`; a person need not give the blanks.
        takes_misfits: A text that is no value of its column is taken: rejected rows may have it.

    Raises:
        ConfigError: It is no key of the table.
    """
    schema, iceberg = lake
    texts = {name: text.ljust(padded.get(name, 0)) for name, text in _texts(given, key, schema, table).items()}
    wanted = dict(texts) if sid is None else {SID: sid, **texts}
    fields: list[pa.Field] = []
    kinds: list[IcebergType] = []
    values: list[pa.Scalar] = []
    condition: BooleanExpression = AlwaysTrue()
    for name, text in wanted.items():
        field = schema.by_name(name)
        assert field is not None
        found, kind = arrow_field(field), iceberg.find_field(name).field_type
        place = place_of(table=table, column=name)
        fields.append(found)
        kinds.append(kind)
        try:
            value = _value(text, kind, place)
            scalar = _scalar(value, text, found, place)
        except ConfigError:
            if not takes_misfits:
                raise
            values.append(pa.scalar(None, found.type))
            condition = AlwaysFalse()
            continue
        values.append(scalar)
        # A NaN is no literal, and equals nothing.
        same = IsNaN(term=Reference(name)) if is_nan(scalar) else EqualTo(term=Reference(name), value=value)
        condition = And(condition, same)
    return RowKey(texts=texts, fields=tuple(fields), kinds=tuple(kinds), values=tuple(values), condition=condition)


def _texts(given: Sequence[str], key: Sequence[str], schema: LakeSchema, table: str) -> dict[str, str]:
    """Return column -> text."""
    named = dict(_named(text, schema) for text in given)
    if None not in named and len(named) == len(given):
        found = {str(name): text for name, text in named.items()}
    else:
        found = dict(zip(key, given, strict=False)) if len(given) == len(key) else {}
    if found and (not key or set(found) == set(key)):
        return {name: found[name] for name in key or found}
    example = " ".join(f"--key {name}=…" for name in (key or ("column",)))
    of = f"its key is ({', '.join(key)})" if key else "it has no key: name columns"
    raise ConfigError(f"{place_of(table=table)}: --key {' '.join(given)} is no key: {of}", hint=f"write {example}")


def _named(text: str, schema: LakeSchema) -> tuple[str | None, str]:
    name, equals, value = text.partition("=")
    return (name, value) if equals and schema.by_name(name) is not None else (None, text)


def _value(text: str, kind: IcebergType, place: str) -> Any:  # noqa: ANN401 (Iceberg's literals)
    try:
        if isinstance(kind, BinaryType | FixedType) and text.startswith(_BYTES):
            return literal(bytes.fromhex(text.removeprefix(_BYTES))).to(kind)
        if isinstance(kind, TimestampType | TimestamptzType):
            at = datetime.datetime.fromisoformat(text)
            utc = at.astimezone(datetime.UTC) if at.tzinfo else at.replace(tzinfo=datetime.UTC)
            text = (utc if isinstance(kind, TimestamptzType) else utc.replace(tzinfo=None)).isoformat()
        if isinstance(kind, FloatType | DoubleType) and not math.isfinite(number := float(text)):
            return number if math.isnan(number) else FloatLiteral(number).to(kind)
        found = literal(_number(text, kind)).to(kind)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise _no_value(place, text, str(kind)) from error
    if isinstance(found, AboveMax | BelowMin):  # outside what the type has
        raise _no_value(place, text, str(kind))
    return found


def _number(text: str, kind: IcebergType) -> str:
    """Return the text that PyIceberg takes for the same value of a type, as files have it; others as they are.

    Raises:
        ValueError, ArithmeticError: The type has no such value.
    """
    if isinstance(kind, IntegerType | LongType) and not _WHOLE.fullmatch(text):
        raise ValueError("it is no integer")
    if isinstance(kind, DecimalType):
        exact = decimal.Context(prec=kind.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
        return f"{decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-kind.scale), context=exact):f}"
    return repr(float(np.float32(text))) if isinstance(kind, FloatType) else text


def _scalar(value: Any, text: str, field: pa.Field, place: str) -> pa.Scalar:  # noqa: ANN401 (Iceberg's literals)
    try:
        return pa.scalar(getattr(value, "value", value), field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _no_value(place, text, str(field.type)) from error


def _is_begin(text: str | None, given: str) -> bool:
    """Whether a text is the begin of what a person gave, and was cut behind that (`kuvasz.modes.rejects`)."""
    from kuvasz.modes.rejects import CUT  # it loads the fold, which a trace can do without

    return text is not None and text.endswith(CUT) and given.startswith(text.removesuffix(CUT))


def _is_value(text: str | None, given: str, field: pa.Field, kind: IcebergType, value: pa.Scalar) -> bool:
    """Whether PostgreSQL's text is the value that a person gave; one that is no value of the type is its text."""
    if text is None or text == given or not value.is_valid:
        return text == given
    if isinstance(kind, BooleanType):
        text = {"t": "true", "f": "false"}.get(text, text)
    try:
        found = _scalar(_value(text, kind, field.name), text, field, field.name)
        return bool(found == value) or (is_nan(found) and is_nan(value))
    except ConfigError:
        return False


def _no_value(place: str, text: str, kind: str) -> ConfigError:
    return ConfigError(f"{place}: --key {text}: no value of the type {kind}", hint="write it as the lake shows it")


__all__ = ["RowKey", "earlier_names", "parse", "widths"]
