from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pyarrow as pa
import pytest

from kuvasz.decode import copytext
from kuvasz.fold.keys import hash_keys
from kuvasz.lake.format.binding import bind
from kuvasz.lake.format.schema import LakeSchema, wanted
from kuvasz.model import Column
from kuvasz.modes.shape import RefusedValue, Shape
from kuvasz.typemap import BUILTIN
from tests.support.changes import INT4, feed, relation, target
from tests.support.wires import copy_line

SEED = bytes(range(16))
INT4_ARRAY = BUILTIN[1007]


def shape(**facts: object) -> Shape:
    wide = relation(Column(name="extra", pg_type=INT4))
    schema = LakeSchema(schema_id=0, fields=wanted(target(), wide))
    found = bind(target(), schema, ("id",), SEED, feed("eu"), relation())
    return dataclasses.replace(found, **facts)


CELLS = copytext.split_copy(copy_line([b"1", b"5", b"a"]) + copy_line([b"2", None, b"b"]), 3)


def test_which_fields_have_a_value_where_their_column_has_a_large_one() -> None:
    are = [shape().is_value(index) for index in range(5)]
    assert are == [False, True, True, True, False], "not the sid, nor extra"
    numbers = relation(Column(name="extra", pg_type=BUILTIN[1700], typmod=(38 << 16) + 4))
    schema = LakeSchema(schema_id=0, fields=wanted(target(), numbers))
    found = bind(target(), schema, ("id",), SEED, feed("eu"), numbers)
    assert found.is_value(4)
    assert not dataclasses.replace(found, out_of_range="null").is_value(4), "NaN is NULL then"


def test_rows_have_the_sid_and_null_where_the_source_has_no_column() -> None:
    found = shape().rows(CELLS)
    assert found.schema == shape().schema
    assert found.to_pylist() == [
        {"sid": "eu", "id": 1, "n": 5, "body": "a", "extra": None},
        {"sid": "eu", "id": 2, "n": None, "body": "b", "extra": None},
    ]
    assert shape().rows(CELLS, np.array([1, 1], np.int32)).column("id").to_pylist() == [2, 2]


def test_keys_are_those_of_the_typed_values_and_the_sid() -> None:
    found, expected = shape().keys(CELLS), hash_keys([pa.array([1, 2], pa.int64())], sid="eu", seed=SEED)
    assert (found.hi.tolist(), found.lo.tolist()) == (expected.hi.tolist(), expected.lo.tolist())
    assert shape(sid="us").keys(CELLS).hi.tolist() != found.hi.tolist()
    assert len(shape().keys(CELLS, np.empty(0, np.int32))) == 0


def test_a_value_that_is_masked_is_not_in_an_error() -> None:
    cells = copytext.split_copy(copy_line([b"1", b"5", b"Jane \xff"]), 3)
    found = shape()
    masked = [dataclasses.replace(one, mask="hmac") if one.name == "body" else one for one in found.bindings]
    with pytest.raises(RefusedValue) as caught:
        dataclasses.replace(found, bindings=tuple(masked)).rows(cells)
    assert caught.value.message == "source eu, table public.items, column body: value *** is not valid UTF-8"


def test_a_value_that_does_not_fit_names_its_place() -> None:
    cells = copytext.split_copy(copy_line([b"1", b"5", b"a"]) + copy_line([b"2", b"99999999999", b"a"]), 3)
    with pytest.raises(RefusedValue) as caught:
        shape().rows(cells)
    assert caught.value.row == 1
    assert str(caught.value).startswith("source eu, table public.items, column n: value '99999999999' ")
    way = "put `types: {n: string}` into the table's entry in the map and start again"
    assert (
        caught.value.hint == f"{way}; or mend the value at the source, and then: kuvasz resync --table public.items"
    )
    # It comes back from executors pickled.
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.row) == (RefusedValue, str(caught.value), 1)


def test_long_values_are_cut_in_messages() -> None:
    cells = copytext.split_copy(copy_line([b"1", b"9" * 5000, b"a"]), 3)
    with pytest.raises(RefusedValue) as caught:
        shape().rows(cells)
    assert len(caught.value.message) < 300


def test_bounds_of_an_array_in_a_key_are_not_dropped() -> None:
    table = relation(Column(name="path", pg_type=INT4_ARRAY, is_key=True))
    found = bind(
        target(), LakeSchema(schema_id=0, fields=wanted(target(), table)), ("id", "path"), SEED, feed("eu"), table
    )
    lines = [copy_line([b"1", b"5", b"a", path]) for path in (b"{1,2}", b"", b"[0:1]={1,2}")]
    cells = copytext.split_copy(b"".join(lines[:1]), 4)
    assert len(found.keys(cells)) == 1
    cells = copytext.split_copy(lines[0] + lines[2], 4)
    for read in (found.rows, found.keys):
        with pytest.raises(
            RefusedValue, match=r"column path: value '\[0:1\]=\{1,2\}' has bounds of its own"
        ) as caught:
            read(cells)
        assert caught.value.row == 1
        assert "part of the key" in str(caught.value.hint)
    with pytest.raises(RefusedValue):
        found.keys(cells, np.array([1], np.int32))
    plain = dataclasses.replace(found, key=(found.key[0],))
    assert plain.rows(cells).column("path").to_pylist() == [[1, 2], [1, 2]]
