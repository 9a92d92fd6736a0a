"""The kernels against their plain twin: every type, right and wrong texts, NULLs between."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kuvasz.decode import arrays, columns, numerics, plain, refusals, texts, times
from kuvasz.decode.cells import CUT
from kuvasz.decode.refusals import ValueRefused
from kuvasz.errors import DecodeError, InternalError
from kuvasz.model import LakeType, ValueType
from kuvasz.typemap import arrow_type
from tests.support import wires
from tests.support.examples import examples

#: All lists are taken apart before the first element is read, all grammar is checked before the first conversion:
#: of several wrong values it need not be the first that is refused.
_TWO_PASSES = (
    "float", "double", "int[]", "text[]", "box[]", "timestamptz[]", "int[][] by domain", "hstore", "vector"
)  # fmt: skip
policies = st.sampled_from(["error", "null", "clamp"])


def same(value: object) -> object:
    """A form in which values are equal only if they are the same: -0.0 is not 0.0, NaN is NaN, 1.0 is not 1.00."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, list | tuple):
        return [same(part) for part in value]
    return value if value is None or isinstance(value, str | bytes | bool) else f"{type(value).__name__} {value}"


def expected(values: list[bytes | None], value_type: ValueType, policy: str) -> list[object]:
    """What the plain twin says, with its refusals in their places."""
    taken: list[object] = []
    for text in values:
        try:
            taken.append(None if text is None else plain.value(text, value_type, policy))
        except ValueRefused as refused:
            taken.append(refused)
    return taken


def attempt(cells: wires.Cells, value_type: ValueType, policy: str) -> pa.Array | ValueRefused:
    try:
        return columns.column(cells, 0, value_type, out_of_range=policy)
    except ValueRefused as refused:
        return refused


def check(name: str, values: list[bytes | None], policy: str) -> None:
    value_type, _ = wires.TYPES[name]
    twin = expected(values, value_type, policy)
    refused = {row: one for row, one in enumerate(twin) if isinstance(one, ValueRefused)}
    array = attempt(wires.one_column(values), value_type, policy)
    if isinstance(array, ValueRefused):
        assert array.row in refused
        if value_type.kind not in {LakeType.LIST, LakeType.MAP}:
            # A nested value with two faults may be refused for either: its form and its elements are read in turn.
            assert array.reason == refused[array.row].reason
        if name not in _TWO_PASSES:
            assert array.row == min(refused)
            assert array.text == refused[array.row].text
        return
    assert not refused, next(iter(refused.values()))
    array.validate(full=True)
    assert array.type == arrow_type(value_type)
    assert same(array.to_pylist()) == same(twin)
    assert array.null_count == sum(one is None for one in twin)


@pytest.mark.parametrize("name", wires.TYPES)
def test_kernels_equal_their_plain_twin(name: str) -> None:
    _, strategy = wires.TYPES[name]

    @settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
    @given(values=st.lists(st.none() | strategy, max_size=6), policy=policies)
    def run(values: list[bytes | None], policy: str) -> None:
        check(name, values, policy)

    run()


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("name", wires.TYPES)
def test_kernels_never_look_outside_a_value(name: str) -> None:
    """As Python, every index is checked; a value at the very end of the bytes has nothing behind it."""
    value_type, strategy = wires.TYPES[name]

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(text=strategy)
    def run(text: bytes) -> None:
        cells = wires.one_column([text])
        trimmed = wires.Cells(data=cells.data[:-1], start=cells.start, length=cells.length)
        compiled = attempt(cells, value_type, "clamp")
        with wires.interpreted(texts, times, arrays, numerics):
            checked = attempt(trimmed, value_type, "clamp")
        assert str(checked) == str(compiled)

    run()


def test_selected_rows_come_in_their_order() -> None:
    cells = wires.one_column([b"1", None, b"3", b"4"])
    rows = np.array([3, 1, 0, 3], np.int32)
    assert columns.column(cells, 0, wires.INT, rows).to_pylist() == [4, None, 1, 4]


def test_a_refusal_names_the_row_of_the_cells_not_of_the_selection() -> None:
    cells = wires.one_column([b"1", b"x", b"{2,y}"])
    with pytest.raises(ValueRefused) as refused:
        columns.column(cells, 0, wires.INT, np.array([0, 1], np.int32))
    assert refused.value.row == 1
    with pytest.raises(ValueRefused) as refused:
        columns.column(cells, 0, wires.array(wires.INT), np.array([2], np.int32))
    assert (refused.value.row, refused.value.text) == (2, "y")


def test_every_row_that_is_refused_is_found_and_no_other() -> None:
    cells = wires.one_column([b"1", b"x", b"y", b"4", b"5", b"6", b"7", b"z"])
    rows = np.array([7, 3, 1, 0, 2, 4, 5, 6], np.int32)
    found = columns.refusals(lambda some: columns.column(cells, 0, wires.INT, some), rows)
    assert [refused.row for refused in found] == [7, 1, 2]


def test_a_value_that_was_cut_away_is_no_null() -> None:
    cells = wires.one_column([b"1", None, b"3"])
    cells.length[0, 2] = CUT
    with pytest.raises(ValueRefused, match="makes its row larger than") as caught:
        columns.column(cells, 0, wires.INT, np.array([1, 2], np.int32))
    assert caught.value.row == 2


def test_an_unchanged_cell_decodes_as_null() -> None:
    cells = wires.one_column([b"1", b""])
    cells.length[0, 1] = wires.UNCHANGED
    assert columns.column(cells, 0, wires.INT).to_pylist() == [1, None]


@pytest.mark.parametrize("name", wires.TYPES)
def test_no_rows_and_only_nulls_decode(name: str) -> None:
    value_type, _ = wires.TYPES[name]
    for values in ([], [None, None]):
        array = columns.column(wires.one_column(values), 0, value_type)
        array.validate(full=True)
        assert array.to_pylist() == values
        assert array.type == arrow_type(value_type)


def test_an_unknown_policy_is_our_own_mistake() -> None:
    with pytest.raises(InternalError, match="out_of_range is 'ignore'"):
        columns.column(wires.one_column([b"2024-01-01"]), 0, wires.DATE, out_of_range="ignore")


def test_a_gigabyte_too_much_is_a_decode_error() -> None:
    row = np.zeros(1, np.uint8)
    cells = wires.Cells(
        data=wires.byte_array(row), start=np.zeros((1, 3), np.int64), length=np.full((1, 3), 2**30, np.int32)
    )
    with pytest.raises(DecodeError, match="3221225472 bytes of text"):
        columns.column(cells, 0, wires.STRING)


def test_arrays_go_to_parquet_and_back(tmp_path) -> None:
    import pyarrow.parquet as pq

    taken = {
        name: columns.column(wires.one_column([text, None]), 0, wires.TYPES[name][0])
        for name, text in {
            "decimal(38,19)": b"-1234567890123456789.0000000000000000001",
            "text[]": b'{a,NULL,"NULL"}',
            "hstore": b'"a"=>NULL',
            "uuid": b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "timestamptz": b"0001-01-01 00:00:00+00",
        }.items()
    }
    table = pa.table(taken)
    pq.write_table(table, tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet").to_pylist() == table.to_pylist()


def test_reasons_have_texts() -> None:
    for reason in range(1, 10):
        assert refusals.refusal(0, b"x", reason).hint
