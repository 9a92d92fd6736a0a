"""What rows have in a column that was added with a default after them (Iceberg spec, "Default values"). Pure.

The default travels in the metadata of the Arrow field, as Iceberg's JSON single value, so that whoever meets a file
without the column can fill it in.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
import uuid
from typing import TYPE_CHECKING, Any

from kuvasz.model import LakeType, PgType, ValueType

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = b"kuvasz.default"

#: Types whose constants are understood here; the text of all others is taken from the source's own rows.
_TYPES = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar",
                    "date", "timestamp", "timestamptz", "uuid", "json", "jsonb"})  # fmt: skip
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)(\+00)?")
_FINITE = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


def of_text(pg_type: PgType, value_type: ValueType, text: str) -> Any:  # noqa: ANN401, PLR0911 (JSON; a table)
    """Return PostgreSQL's text of a constant as Iceberg's JSON single value, None where it has no such form."""
    if pg_type.schema != "pg_catalog" or pg_type.name not in _TYPES:
        return None
    match value_type.kind:
        case LakeType.BOOLEAN:
            return text == "t"
        case LakeType.INT | LakeType.LONG:
            return int(text)
        case LakeType.FLOAT | LakeType.DOUBLE:
            return float(text) if _FINITE.fullmatch(text) else None
        case LakeType.DECIMAL:
            return _decimal(text, value_type)
        case LakeType.STRING:
            return text
        case LakeType.UUID:
            return text
        case LakeType.DATE:
            return text if _DATE.fullmatch(text) else None
        case LakeType.TIMESTAMP | LakeType.TIMESTAMPTZ:
            found = _MOMENT.fullmatch(text)
            if found is None or (found[3] is None) != (value_type.kind is LakeType.TIMESTAMP):
                return None
            return f"{found[1]}T{found[2]}" + ("" if found[3] is None else "+00:00")
    return None


def _decimal(text: str, value_type: ValueType) -> str | None:
    """Return a number with all digits of its scale; None if it has more digits than the type, which nobody rounds."""
    if not _FINITE.fullmatch(text):
        return None
    value = decimal.Decimal(text)
    try:
        # The default context has 28 digits, fewer than Iceberg's 38, and rounds.
        whole = value.quantize(decimal.Decimal(1).scaleb(-value_type.scale), context=_exact(value_type.precision))
    except (decimal.InvalidOperation, decimal.Inexact):
        return None
    return format(whole, "f")


def _exact(digits: int) -> decimal.Context:
    return decimal.Context(prec=max(digits, 1), traps=[decimal.InvalidOperation, decimal.Inexact])


def metadata(default: Any) -> dict[bytes, bytes]:  # noqa: ANN401 (JSON)
    """Return what an Arrow field carries of its default."""
    return {} if default is None else {_KEY: json.dumps(default).encode()}


def column(field: pa.Field, count: int) -> pa.Array:
    """Return what rows have that were there before the field: its default, or NULL."""
    import pyarrow as pa  # which most verbs need not wait for

    text = (field.metadata or {}).get(_KEY)
    if text is None:
        return pa.nulls(count, field.type)
    return pa.repeat(pa.scalar(_python(json.loads(text), field.type), field.type), count)


def _python(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 (JSON)
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat(value)
    if pa.types.is_binary(kind):
        return bytes.fromhex(value)
    if pa.types.is_fixed_size_binary(kind):
        return uuid.UUID(value).bytes
    return value
