from __future__ import annotations

import datetime
import decimal
import struct
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import InternalError
from kuvasz.fold import siphash
from kuvasz.fold.keys import Keys, Sids, hash_keys

SEED = bytes(range(1, 17))
OTHER = pa.array([7, 7, 7])  # a second column keeps integers from standing unhashed


def values(columns, sid="eu", seed=SEED):
    keys = hash_keys(columns, sid=sid, seed=seed)
    return list(zip(keys.hi.tolist(), keys.lo.tolist(), strict=True))


def framed(data: bytes | None, scale: int = 0) -> bytes:
    if data is None:
        return bytes(8)
    return struct.pack("<Q", 1 << 56 | scale << 32 | len(data)) + data + bytes(-len(data) % 8)


def plain(value) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int):
        return struct.pack("<q", value)
    if isinstance(value, float):
        return struct.pack("<d", value)
    return value


def twin(row, sid="eu"):
    return siphash.hash128(SEED, framed(plain(sid)) + b"".join(framed(plain(value)) for value in row))


row = st.tuples(
    st.none() | st.text(max_size=40),
    st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.binary(max_size=20),
    st.none() | st.floats(allow_nan=False),
)


@settings(deadline=None)  # the first example compiles
@given(rows=st.lists(row, min_size=1, max_size=8), sid=st.none() | st.text(max_size=20), cut=st.integers(0, 8))
def test_kernels_agree_with_the_plain_twin_on_whole_sliced_and_chunked_columns(rows, sid, cut):
    columns = [
        pa.array(column, kind)
        for column, kind in zip(
            zip(*rows, strict=True), [pa.string(), pa.int64(), pa.binary(), pa.float64()], strict=True
        )
    ]
    expected = [twin(one, sid) for one in rows]
    assert values(columns, sid) == expected
    assert values([column.slice(cut) for column in columns], sid) == expected[cut:]
    chunked = [pa.chunked_array([column[:cut], column[cut:]]) for column in columns]
    assert values(chunked, sid) == expected


STRINGS = ["a", None, "grün und länger als acht"]
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=datetime.UTC)
SAME = {
    "integers": [pa.array([1, None, -3], kind) for kind in (pa.int16(), pa.int32(), pa.int64())],
    "floats": [pa.array([1.5, None, float("nan")], kind) for kind in (pa.float32(), pa.float64())],
    "strings": [
        *[pa.array(STRINGS, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())],
        pa.array(STRINGS).dictionary_encode(),
        pa.array([None if text is None else text.encode() for text in STRINGS], pa.binary()),
    ],
    "uuids": [
        pa.array([uuid.UUID(int=5).bytes, None, uuid.UUID(int=6).bytes], kind)
        for kind in (pa.uuid(), pa.binary(16), pa.binary(), pa.large_binary())
    ],
    "decimals": [
        pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-7.00")], kind)
        for kind in (pa.decimal128(5, 2), pa.decimal128(38, 2), pa.decimal64(10, 2))
    ],
    "timestamps": [
        pa.array([MOMENT, None, MOMENT], kind) for kind in (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"))
    ],
    "dates": [pa.array([MOMENT.date(), None, MOMENT.date()], kind) for kind in (pa.date32(), pa.date64())],
    "lists": [
        pa.array([[1, None], None, []], kind)
        for kind in (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.large_list(pa.int64()))
    ],
    "maps": [
        pa.array([[("a", "b")], None, []], kind)
        for kind in (pa.map_(pa.string(), pa.string()), pa.map_(pa.large_string(), pa.large_string()))
    ],
    "structs": [
        pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", kind)])) for kind in (pa.int32(), pa.int64())
    ],
}


@pytest.mark.parametrize("name", SAME)
def test_equal_values_have_equal_keys_however_arrow_holds_them(name):
    for others in ([], [OTHER]):
        first, *rest = [values([column, *others]) for column in SAME[name]]
        assert all(keys == first for keys in rest)
        if name not in ("timestamps", "dates"):
            assert len(set(first)) == 3


@pytest.mark.parametrize("name", SAME)
def test_slices_have_the_keys_of_their_rows(name):
    for column in SAME[name]:
        both = pa.concat_arrays([column, column])
        assert values([both.slice(2, 3), OTHER]) == [values([column, OTHER])[at] for at in (2, 0, 1)]
        assert values([both.slice(2, 3)]) == [values([column])[at] for at in (2, 0, 1)]
        assert values([column.slice(1, 0)]) == []


def test_a_round_trip_through_parquet_keeps_keys(tmp_path):
    table = pa.table({name: columns[0] for name, columns in SAME.items()})
    pq.write_table(table, tmp_path / "t.parquet")
    back = pq.read_table(tmp_path / "t.parquet", read_dictionary=["strings"])
    for name in table.column_names:
        assert values([back[name], OTHER]) == values([table[name], OTHER])


@pytest.mark.parametrize("seed", [SEED, bytes(16), b"\xff" * 16])
@pytest.mark.parametrize("sid", ["eu", None])
def test_a_single_integer_is_added_to_the_hash_of_the_sid(sid, seed):
    hi, lo = siphash.hash128(seed, bytes(8) if sid is None else framed(b"eu"))
    integers = [1, -1, 1 << 40, 0, None, (1 << 63) - 1, -(1 << 63)]
    found = values([pa.array(integers)], sid=sid, seed=seed)
    expected = [((hi << 64 | lo) + (integer or 0)) % (1 << 128) for integer in integers]
    sums = [hi << 64 | lo for hi, lo in found]
    assert [one for at, one in enumerate(sums) if at != 4] == [one for at, one in enumerate(expected) if at != 4]
    assert sums[4] not in expected
    assert len({one % (1 << 96) for one in sums}) == len(integers), "apart in the bits that an index keeps, too"


def test_null_is_neither_zero_nor_empty():
    assert len(set(values([pa.array([0, None])]))) == 2
    assert len(set(values([pa.array(["", None])]))) == 2
    assert len(set(values([pa.array([0, None, 0]), OTHER]))) == 2
    assert values([pa.nulls(3)]) == values([pa.array([None] * 3, pa.string())])


def test_borders_between_columns_and_sid_count():
    a, b = pa.array(["a", "ab"]), pa.array(["bc", "c"])
    assert len(set(values([a, b]))) == 2
    assert len(set(values([pa.array(["x"])], sid="yz") + values([pa.array(["zx"])], sid="y"))) == 2
    assert len(set(values([a], sid=None) + values([a], sid=""))) == 4
    zeros = pa.array([b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9])
    assert len(set(values([zeros]))) == 5


def test_seed_decides():
    assert values([pa.array(["a"])]) != values([pa.array(["a"])], seed=bytes(16))
    assert values([pa.array([1])]) != values([pa.array([1])], seed=bytes(16))


def test_what_cannot_be_a_key_is_refused():
    with pytest.raises(InternalError, match=r"^key columns of \[1, 2\] rows cannot make keys\n"):
        hash_keys([pa.array([1]), pa.array([1, 2])], sid=None, seed=SEED)
    with pytest.raises(InternalError, match=r"^key columns of \[\] rows cannot make keys\n"):
        hash_keys([], sid=None, seed=SEED)
    with pytest.raises(InternalError, match=r"^a key seed has 16 bytes, not 3\n"):
        hash_keys([pa.array([1])], sid=None, seed=b"abc")
    with pytest.raises(InternalError, match=r"^no key can be made of the Arrow type month_day_nano_interval\n"):
        hash_keys([pa.array([None], pa.month_day_nano_interval())], sid=None, seed=SEED)


def test_keys_take_and_concat():
    keys = Keys(hi=np.arange(4, dtype=np.uint64), lo=np.arange(4, 8, dtype=np.uint64))
    assert len(keys) == 4
    assert keys.take(np.array([3, 0])).lo.tolist() == [7, 4]
    assert Keys.concat([keys, Keys.empty(), keys.take(slice(1))]).hi.tolist() == [0, 1, 2, 3, 0]
    assert len(Keys.concat([])) == 0


@pytest.mark.parametrize(
    "columns", [[pa.array([7, None, 7, 8])], [pa.array(["a", None, "a", "b"]), pa.array([1] * 4)]]
)
def test_rows_of_several_sources_have_the_keys_that_each_source_would_give_them(columns: list[pa.Array]) -> None:
    whose = pa.array(["eu", None, "us", "eu"])
    together = hash_keys(columns, sid=Sids.of_column(whose), seed=SEED)
    for row, sid in enumerate(whose.to_pylist()):
        alone = hash_keys([column.slice(row, 1) for column in columns], sid=sid, seed=SEED)
        assert (together.hi[row], together.lo[row]) == (alone.hi[0], alone.lo[0])


def test_no_rows_of_several_sources_have_no_keys() -> None:
    for columns in ([pa.array([], pa.int64())], [pa.array([], pa.string())]):
        found = hash_keys(columns, sid=Sids.of_column(pa.chunked_array([], pa.string())), seed=SEED)
        assert len(found) == 0
