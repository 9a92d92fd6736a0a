"""Bytes as PostgreSQL sends them, and values to put in: for the tests of the decoder."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from kuvasz.decode.cells import NULL, UNCHANGED, Cells, byte_array
from kuvasz.model import LakeType, ValueType, Wire

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator

INT = ValueType(kind=LakeType.INT, wire=Wire.INTEGER)
LONG = ValueType(kind=LakeType.LONG, wire=Wire.INTEGER)
BOOLEAN = ValueType(kind=LakeType.BOOLEAN, wire=Wire.BOOL)
FLOAT = ValueType(kind=LakeType.FLOAT, wire=Wire.FLOAT)
DOUBLE = ValueType(kind=LakeType.DOUBLE, wire=Wire.FLOAT)
STRING = ValueType(kind=LakeType.STRING)
BYTEA = ValueType(kind=LakeType.BINARY, wire=Wire.HEX)
GEOMETRY = ValueType(kind=LakeType.BINARY, wire=Wire.BARE_HEX)
DATE = ValueType(kind=LakeType.DATE, wire=Wire.DATE)
TIMESTAMP = ValueType(kind=LakeType.TIMESTAMP, wire=Wire.TIMESTAMP)
TIMESTAMPTZ = ValueType(kind=LakeType.TIMESTAMPTZ, wire=Wire.TIMESTAMPTZ)
UUID = ValueType(kind=LakeType.UUID, wire=Wire.UUID)
HSTORE = ValueType(kind=LakeType.MAP, wire=Wire.HSTORE)
VECTOR = ValueType(kind=LakeType.LIST, wire=Wire.VECTOR, element=FLOAT)


def decimal(precision: int, scale: int) -> ValueType:
    return ValueType(kind=LakeType.DECIMAL, wire=Wire.NUMERIC, precision=precision, scale=scale)


def array(element: ValueType, delimiter: str = ",") -> ValueType:
    return ValueType(kind=LakeType.LIST, wire=Wire.ARRAY, element=element, delimiter=delimiter)


def one_column(values: list[bytes | None]) -> Cells:
    """Cells of one column, with bytes around each value that must not be looked at."""
    data = bytearray(b"\x00")
    start, length = [], []
    for value in values:
        start.append(len(data))
        length.append(NULL if value is None else len(value))
        data += (value or b"") + b"7"
    return Cells(
        data=byte_array(bytes(data)), start=np.array([start], np.int64).reshape(1, -1),
        length=np.array([length], np.int32).reshape(1, -1),
    )  # fmt: skip


def tuple_data(values: Sequence[Any]) -> bytes:
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value == UNCHANGED:
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">i", len(value)) + value)
    return b"".join(parts)


def message(tag: str, new: list | None = None, old: list | None = None, old_tag: str = "") -> bytes:
    """A row message of relation 16385."""
    parts = [tag.encode(), struct.pack(">i", 16385)]
    if old is not None:
        parts += [old_tag.encode(), tuple_data(old)]
    if new is not None:
        parts += [b"N", tuple_data(new)]
    return b"".join(parts)


def joined(messages: list[bytes]) -> tuple[bytes, np.ndarray]:
    return b"".join(messages), np.array([len(one) for one in messages], np.uint32)


_COPY_ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}


def copy_line(values: list[bytes | None]) -> bytes:
    """A line as COPY TO writes it (CopyAttributeOutText in copyto.c)."""
    fields = [
        b"\\N" if value is None else b"".join(_COPY_ESCAPES.get(byte, bytes([byte])) for byte in value)
        for value in values
    ]
    return b"\t".join(fields) + b"\n"


def array_text(elements: Sequence[bytes | None], delimiter: bytes = b",") -> bytes:
    """An array as array_out writes it."""
    return b"{" + delimiter.join(_element(element, delimiter) for element in elements) + b"}"


def _element(element: bytes | None, delimiter: bytes) -> bytes:
    if element is None:
        return b"NULL"
    special = element == b"" or element.lower() == b"null" or any(
        byte in b'"\\{} \t\n\r\v\f' + delimiter for byte in element
    )  # fmt: skip
    return quoted(element) if special else element


def quoted(text: bytes) -> bytes:
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def hstore_text(pairs: list[tuple[bytes, bytes | None]]) -> bytes:
    """An hstore as hstore_out writes it."""
    return b", ".join(quoted(key) + b"=>" + (b"NULL" if item is None else quoted(item)) for key, item in pairs)


@contextlib.contextmanager
def interpreted(*modules: types.ModuleType) -> Iterator[None]:
    """Run the kernels of the modules as Python, where NumPy checks every index."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            for name, member in list(vars(module).items()):
                if hasattr(member, "py_func"):
                    stack.enter_context(mock.patch.object(module, name, member.py_func))
        yield


years = st.one_of(st.integers(1, 9999), st.integers(1, 6_000_000), st.sampled_from([1, 2, 4, 100, 400, 9999, 10000]))
eras = st.sampled_from([b"", b"", b"", b" BC"])
_dates = st.tuples(years, st.integers(1, 12), st.integers(1, 31))
_clocks = (st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
_times = st.tuples(years, st.integers(1, 12), st.integers(1, 29), *_clocks)
_fractions = st.text("0123456789", max_size=6).map(str.encode)
_offsets = st.one_of(
    st.just(b"+00"),
    st.builds(
        lambda sign, hours, rest: b"%s%02d" % (sign, hours) + rest,
        st.sampled_from([b"+", b"-"]), st.integers(0, 15), st.sampled_from([b"", b":30", b":19:32"]),
    ),
)  # fmt: skip


def date_texts() -> st.SearchStrategy[bytes]:
    """Dates of any year, as date_out writes them."""
    return st.builds(lambda date, era: b"%04d-%02d-%02d" % date + era, _dates, eras)


def timestamp_texts(zoned: bool) -> st.SearchStrategy[bytes]:
    """Timestamps of any year, as timestamp_out and timestamptz_out write them."""

    def text(at: tuple[int, ...], fraction: bytes, offset: bytes, era: bytes) -> bytes:
        return b"%04d-%02d-%02d %02d:%02d:%02d" % at + (b"." + fraction if fraction else b"") + offset + era

    return st.builds(text, _times, _fractions, _offsets if zoned else st.just(b""), eras)


def float_text(number: float | np.floating) -> bytes:
    return str(number).replace("inf", "Infinity").replace("nan", "NaN").encode()


infinities = st.sampled_from([b"infinity", b"-infinity"])
integer_texts = st.one_of(
    st.integers(-(2**65), 2**65), st.integers(-1000, 1000),
    st.sampled_from([0, 2**31, 2**31 - 1, -(2**31), -(2**31) - 1, 2**63, 2**63 - 1, -(2**63), -(2**63) - 1]),
).map(lambda number: b"%d" % number)  # fmt: skip
double_texts = st.floats().map(float_text)
float_texts = st.one_of(
    st.floats(width=32).map(lambda number: float_text(np.float32(number))),
    st.floats(-1e38, 1e38).map(float_text),
    st.sampled_from([b"1e39", b"3.4028235e+38", b"3.40282357e+38", b"1e-45", b"7e-46", b"16777217", b"0.1"]),
)
numeric_texts = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False).map(
        lambda number: format(number, "f")[:60].rstrip(".").encode()
    ),
    st.integers(-(10**40), 10**40).map(lambda number: b"%d" % number),
    st.tuples(st.integers(-(10**20), 10**20), st.text("0123456789", min_size=1, max_size=20)).map(
        lambda parts: f"{parts[0]}.{parts[1]}".encode()
    ),
    st.sampled_from([b"0", b"-0", b"0.00", b"NaN", b"Infinity", b"-Infinity", b"9" * 38, b"1" + b"0" * 38]),
)
texts = st.one_of(st.text(), st.text('\\"{},NULnul \t\n;=>', max_size=8)).map(str.encode)


def with_mistakes(valid: st.SearchStrategy[bytes], alphabet: bytes) -> st.SearchStrategy[bytes]:
    """Valid texts, texts with one byte changed, taken out or put in, and texts of the alphabet."""
    mistaken = st.builds(_mistaken, valid, st.integers(0, 1 << 16), st.sampled_from(alphabet), st.sampled_from("pco"))
    return st.one_of(valid, mistaken, st.text(alphabet.decode(), max_size=30).map(str.encode))


def _mistaken(text: bytes, place: int, byte: int, how: str) -> bytes:
    """Put a byte in, change one, or take one out."""
    at = place % max(len(text), 1)
    return text[:at] + (b"" if how == "o" else bytes([byte])) + text[at + (how != "p") :]


#: Name -> type and texts, right and wrong.
TYPES: dict[str, tuple[ValueType, st.SearchStrategy[bytes]]] = {
    "boolean": (BOOLEAN, with_mistakes(st.sampled_from([b"t", b"f"]), b"tfTF1")),
    "int": (INT, with_mistakes(integer_texts, b"0129-+. ")),
    "long": (LONG, with_mistakes(integer_texts, b"0129-+. ")),
    "float": (FLOAT, with_mistakes(float_texts, b"0129-+.eNaInfity")),
    "double": (DOUBLE, with_mistakes(double_texts, b"0129-+.eNaInfity")),
    "decimal(12,2)": (decimal(12, 2), with_mistakes(numeric_texts, b"0129-.eNaInfity")),
    "decimal(38,0)": (decimal(38, 0), with_mistakes(numeric_texts, b"0129-.eNaInfity")),
    "decimal(38,19)": (decimal(38, 19), with_mistakes(numeric_texts, b"0129-.eNaInfity")),
    "decimal(38,38)": (decimal(38, 38), with_mistakes(numeric_texts, b"0129-.")),
    "string": (STRING, st.one_of(texts, st.binary())),
    "bytea": (BYTEA, with_mistakes(st.binary().map(lambda raw: b"\\x" + raw.hex().encode()), b"\\x09afAFg")),
    "geometry": (GEOMETRY, with_mistakes(st.binary().map(lambda raw: raw.hex().upper().encode()), b"09afAFg")),
    "date": (DATE, with_mistakes(st.one_of(date_texts(), infinities), b"0123- BC:")),
    "timestamp": (TIMESTAMP, with_mistakes(st.one_of(timestamp_texts(False), infinities), b"0123- BC:.+")),
    "timestamptz": (TIMESTAMPTZ, with_mistakes(st.one_of(timestamp_texts(True), infinities), b"0123- BC:.+")),
    "uuid": (UUID, with_mistakes(st.uuids().map(lambda one: str(one).encode()), b"09afAF-g")),
    "int[]": (array(INT), with_mistakes(
        st.lists(st.none() | st.integers(-99, 99).map(lambda one: b"%d" % one), max_size=5).map(array_text),
        b'{},"\\19-NUL[]:=')),
    "text[]": (array(STRING), with_mistakes(
        st.lists(st.none() | texts, max_size=5).map(array_text), b'{},"\\aNUL nul[]:=')),
    "box[]": (array(STRING, ";"), with_mistakes(
        st.lists(st.none() | texts, max_size=5).map(lambda one: array_text(one, b";")), b'{};"\\a(),')),
    "timestamptz[]": (array(TIMESTAMPTZ), with_mistakes(
        st.lists(st.none() | timestamp_texts(True), max_size=3).map(array_text), b'{},"\\0123- BC:.+')),
    "int[][] by domain": (array(array(INT)), with_mistakes(
        st.lists(st.lists(st.sampled_from([b"1", None]), max_size=3).map(array_text), max_size=3).map(
            array_text), b'{},"\\1')),
    "hstore": (HSTORE, with_mistakes(
        st.lists(st.tuples(texts, st.none() | texts), max_size=4).map(hstore_text), b'"\\=>, NULnul')),
    "vector": (VECTOR, with_mistakes(
        st.lists(float_texts, max_size=4).map(lambda one: b"[" + b",".join(one) + b"]"), b'[],1.eNaN{"')),
}  # fmt: skip
