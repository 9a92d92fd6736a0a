"""128-bit keys of rows, hashed from typed Arrow values.

Enters: the key columns of a chunk, whatever they came from: stream, COPY or a Parquet file read back. Leaves:
one key per row. Equal values give equal keys however Arrow holds them: sliced, chunked, dictionary-encoded, as
views, with 32- or 64-bit offsets, before or after a promotion of the column (int to long, float to double,
decimal precision).

A key is SipHash-1-3-128 over whole 64-bit words:

    sid, then each column in turn:  0                                  if there is none, or NULL
                                    1<<56 | scale<<32 | length, bytes  else; bytes padded with zeros to whole words

so that ("a", "bc") and ("ab", "c") differ, and NULL equals NULL (a table of replica identity FULL is matched by
whole rows). Nested values stand as the keys of their elements. The hash is keyed by the table's random seed,
because source rows may be chosen by an enemy who wants collisions.

A single integer column is not hashed: its key is the hash of the sid plus the integer, as numbers of 128 bits. So
keys of one sid are never equal, and those of a sequence stay neighbours in the position index, which keeps the 96
lower bits of a key. Keys of two sids are equal there if the difference of their hashes, which nobody knows, happens
to be that of the integers.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.errors import InternalError
from kuvasz.fold import siphash, siphash_rows
from kuvasz.fold.siphash_rows import PRESENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kuvasz.model import Int32s, Int64s, UInt8s, UInt64s

SEED_BYTES = 16

#: Heads of hashes that are remembered: plain Python works them out, and a fleet has the same ones every second.
_MOST_SIDS = 1 << 15

_Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.integer[Any] | np.bool_]] | slice"
_Array: TypeAlias = "Any"  #: pa.Array of a type known at run time only
_ALL = np.empty(0, np.uint8)  #: stands for "no row is NULL"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """n keys of 128 bits, as two arrays."""

    hi: UInt64s
    lo: UInt64s

    def __len__(self) -> int:
        return len(self.hi)

    def take(self, rows: _Rows) -> Keys:
        """Return the keys of `rows`: indices, a mask or a slice."""
        return Keys(hi=self.hi[rows], lo=self.lo[rows])

    @staticmethod
    def concat(parts: Sequence[Keys]) -> Keys:
        """Return the keys of all parts, one after another."""
        if not parts:
            return Keys.empty()
        return Keys(hi=np.concatenate([part.hi for part in parts]), lo=np.concatenate([part.lo for part in parts]))

    @staticmethod
    def empty(count: int = 0) -> Keys:
        """Return `count` keys, all zero."""
        return Keys(hi=np.zeros(count, np.uint64), lo=np.zeros(count, np.uint64))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sids:
    """The identifiers of n rows that are of several sources."""

    names: tuple[str | None, ...]
    of: Int32s  #: per row: which of the names

    @classmethod
    def of_column(cls, column: pa.Array[Any] | pa.ChunkedArray[Any]) -> Self:
        """Return those that a column of strings holds."""
        codes = _whole(column).dictionary_encode(null_encoding="encode")
        return cls(names=tuple(codes.dictionary.to_pylist()), of=codes.indices.to_numpy(zero_copy_only=False))


def hash_keys(
    columns: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], *, sid: str | Sids | None, seed: bytes
) -> Keys:
    """Return the keys of n rows.

    Args:
        columns: The key columns in key order, at least one, each of n values.
        sid: The source's identifier where it is part of the key, or that of each row.
        seed: 16 random bytes, one value for the life of the table.

    Raises:
        InternalError: There is no column, the lengths differ, the seed is not 16 bytes, or a type has no key form.
    """
    count = _checked_length(columns, seed)
    if len(columns) == 1 and pa.types.is_integer(_plain_type(columns[0].type)):
        return _integer_keys(columns[0], count, sid, seed)
    state = _begin(count, sid, seed)
    for column in columns:
        _absorb(state, column, seed)
    return _finish(state)


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a read-only, contiguous, aligned view: kernels are compiled once per array type."""
    view = np.require(array, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view


def _checked_length(columns: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], seed: bytes) -> int:
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise InternalError(f"key columns of {sorted(lengths)} rows cannot make keys")
    if len(seed) != SEED_BYTES:
        raise InternalError(f"a key seed has {SEED_BYTES} bytes, not {len(seed)}")
    return lengths.pop()


# --- One integer column


def _integer_keys(
    column: pa.Array[Any] | pa.ChunkedArray[Any], count: int, sid: str | Sids | None, seed: bytes
) -> Keys:
    hi = _per_row(sid, count, lambda name: _hash_of(name, seed)[0])
    lo = _per_row(sid, count, lambda name: _hash_of(name, seed)[1])
    for start, array in _chunks(column):
        part = slice(start, start + len(array))
        integers = _int64(array)
        lo[part] += integers.view(np.uint64)
        is_carried = lo[part] < integers.view(np.uint64)
        hi[part] += np.subtract(is_carried, integers < 0, dtype=np.int64).view(np.uint64)
        if array.null_count:
            # NULL must not be 0; the second frame keeps it apart from any sid.
            is_null = array.is_null().to_numpy(zero_copy_only=False)
            nulls = _per_row(sid, count, lambda name: siphash.hash128(seed, _framed(name) + _framed(None)))
            hi[part][is_null], lo[part][is_null] = nulls[part][is_null].T
    return Keys(hi=hi, lo=lo)


def _per_row(sid: str | Sids | None, count: int, head: Callable[[str | None], int | tuple[int, ...]]) -> UInt64s:
    """Return what comes of each row's sid, as an array of `count` such heads."""
    if isinstance(sid, Sids) and sid.names:
        return np.array([head(name) for name in sid.names], np.uint64)[sid.of]
    one = np.array(head(None if isinstance(sid, Sids) else sid), np.uint64)
    return np.broadcast_to(one, (count, *one.shape)).copy()


@functools.lru_cache(maxsize=_MOST_SIDS)
def _hash_of(sid: str | None, seed: bytes) -> tuple[int, int]:
    return siphash.hash128(seed, _framed(sid))


def _framed(text: str | None) -> bytes:
    """Return the words of a string or of NULL, as bytes."""
    if text is None:
        return bytes(8)
    data = text.encode()
    return (PRESENT | len(data)).to_bytes(8, "little") + data + bytes(-len(data) % 8)


# --- Any columns: one SipHash state per row (v0..v3 and the count of bytes so far)


def _begin(count: int, sid: str | Sids | None, seed: bytes) -> UInt64s:
    """Return the states of `count` rows after the sid, shape (count, 5)."""
    return _per_row(sid, count, lambda name: _state_after(name, seed))


@functools.lru_cache(maxsize=_MOST_SIDS)
def _state_after(sid: str | None, seed: bytes) -> tuple[int, ...]:
    head = _framed(sid)
    words = siphash.initial(seed, is_wide=True)
    for at in range(0, len(head), 8):
        siphash.absorb(words, int.from_bytes(head[at : at + 8], "little"), 1)
    return *words, len(head)


def _absorb(state: UInt64s, column: pa.Array[Any] | pa.ChunkedArray[Any], seed: bytes) -> None:
    for start, array in _chunks(column):
        rows = state[start : start + len(array)]
        valid = _valid(array)
        fixed = _words(array)
        if fixed is not None:
            words, header = fixed
            siphash_rows.absorb_words(rows, frozen(words), np.uint64(header), valid)
        else:
            data, offsets = _bytes(array, seed)
            siphash_rows.absorb_bytes(rows, frozen(data), frozen(offsets), valid)


def _finish(state: UInt64s) -> Keys:
    keys = Keys(hi=np.empty(len(state), np.uint64), lo=np.empty(len(state), np.uint64))
    siphash_rows.finish(state, keys.hi, keys.lo)
    return keys


# --- Arrow arrays as words or bytes


def _plain_type(kind: _Array) -> _Array:
    """Return the type of the values, whatever wraps them."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _whole(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> _Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _chunks(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> Iterator[tuple[int, _Array]]:
    """Yield the start and the plain array of each chunk."""
    start = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        yield start, _plain(chunk)
        start += len(chunk)


def _plain(array: _Array) -> _Array:
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
            array = array.cast(pa.large_binary())
        elif pa.types.is_null(array.type):
            array = array.cast(pa.int64())
        else:
            return array


def _valid(array: _Array) -> UInt8s:
    """Return one byte per row, 0 where NULL; empty if nothing is NULL."""
    if not array.null_count:
        return frozen(_ALL)
    return frozen(array.is_valid().cast(pa.uint8()).to_numpy())


def _words(array: _Array) -> tuple[UInt64s, int] | None:
    """Return a fixed-width array as (n, words) with its header, or None if it is not of fixed width."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return _decimal_words(array), PRESENT | (kind.scale & 0xFF) << 32 | 16
    if pa.types.is_floating(kind):
        values = _values(array).astype(np.float64)
        values[np.isnan(values)] = np.nan  # many bit patterns, one value
        return values.view(np.uint64).reshape(-1, 1), PRESENT | 8
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _int64(array).view(np.uint64).reshape(-1, 1), PRESENT | 8
    return None


_UNITS: Sequence[tuple[Callable[[Any], bool], Callable[[Any], Any]]] = (
    (pa.types.is_boolean, lambda _: pa.uint8()),
    (pa.types.is_date64, lambda _: pa.date32()),
    (pa.types.is_timestamp, lambda kind: pa.timestamp("us", kind.tz)),
    (pa.types.is_time, lambda _: pa.time64("us")),
    (pa.types.is_duration, lambda _: pa.duration("us")),
)


def _int64(array: _Array) -> Int64s:
    """Return integers as they are, booleans as 0 and 1, dates in days, instants and times in µs."""
    for holds, target in _UNITS:
        if holds(array.type):
            array = array.cast(target(array.type))
            break
    return np.ascontiguousarray(_values(array)).astype(np.int64, copy=False)


_DTYPES = {8: "1", 16: "2", 32: "4", 64: "8"}


def _values(array: _Array) -> np.ndarray[Any, Any]:
    """Return the raw values of a primitive array, whatever stands where it is NULL."""
    kind = array.type
    if pa.types.is_interval(kind):
        raise InternalError(f"no key can be made of the Arrow type {kind}")
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), letter + _DTYPES[kind.bit_width])
    dtype = np.dtype(letter + _DTYPES[kind.bit_width])
    return np.ndarray(len(array), dtype, buffer, array.offset * dtype.itemsize)


def _decimal_words(array: _Array) -> UInt64s:
    """Return the unscaled values as little-endian two's complement of 16 bytes, shape (n, 2)."""
    if array.type.bit_width != 128:
        array = array.cast(pa.decimal128(38, array.type.scale))
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), 2), np.uint64)
    return np.ndarray((len(array), 2), np.uint64, buffer, array.offset * 16)


def _bytes(array: _Array, seed: bytes) -> tuple[UInt8s, Int64s]:
    """Return the bytes of all rows and n + 1 offsets into them."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _variable_bytes(array, np.dtype(np.int32))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _variable_bytes(array, np.dtype(np.int64))
    if pa.types.is_fixed_size_binary(kind):
        first, width = array.offset, kind.byte_width
        return _buffer(array.buffers()[1]), np.arange(first, first + len(array) + 1, dtype=np.int64) * width
    if pa.types.is_struct(kind):
        fields = [array.field(at) for at in range(kind.num_fields)]
        return _key_bytes(hash_keys(fields, sid="", seed=seed)), np.arange(len(array) + 1, dtype=np.int64) * 16
    return _element_bytes(array, seed)


def _variable_bytes(array: _Array, width: np.dtype[Any]) -> tuple[UInt8s, Int64s]:
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    ends: np.ndarray[Any, Any] = np.ndarray(len(array) + 1, width, offsets, array.offset * width.itemsize)
    return _buffer(data), ends.astype(np.int64)


def _element_bytes(array: _Array, seed: bytes) -> tuple[UInt8s, Int64s]:
    """Return lists and maps as the keys of their elements, 16 bytes each."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        offsets = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64) * kind.list_size
        children = [array.values]
    elif pa.types.is_map(kind):
        offsets, children = array.offsets.to_numpy().astype(np.int64), [array.keys, array.items]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, children = array.offsets.to_numpy().astype(np.int64), [array.values]
    else:
        raise InternalError(f"no key can be made of the Arrow type {kind}")
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    elements = hash_keys([child.slice(first, last - first) for child in children], sid="", seed=seed)
    return _key_bytes(elements), (offsets - first) * 16


def _key_bytes(keys: Keys) -> UInt8s:
    return np.column_stack((keys.hi, keys.lo)).view(np.uint8).reshape(-1)


def _buffer(buffer: _Array) -> UInt8s:
    return np.empty(0, np.uint8) if buffer is None else np.ndarray(buffer.size, np.uint8, buffer)
