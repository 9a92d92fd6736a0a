from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from kuvasz.errors import DecodeError
from kuvasz.lake.files import puffin

bitmaps = st.one_of(
    st.sets(st.integers(0, 200)),
    st.sets(st.one_of(st.integers(0, 2**31 - 2), st.integers(2**32, 2**33))),
    st.builds(lambda start, size: set(range(start, start + size)), st.integers(0, 2**20), st.integers(1, 3000)),
)


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(bitmaps, max_size=4))
def test_vectors_come_back(sets: list[set[int]]) -> None:
    content, vectors = puffin.encode([(f"s3://b/f{number}", BitMap64(one)) for number, one in enumerate(sets)])
    for number, (one, vector) in enumerate(zip(sets, vectors, strict=True)):
        assert set(puffin.decode(content[vector.offset : vector.offset + vector.size])) == one
        assert (vector.data_file, vector.cardinality) == (f"s3://b/f{number}", len(one))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(st.sets(st.integers(0, 2**31 - 1), min_size=1), min_size=1, max_size=3))
def test_pyiceberg_reads_the_file(sets: list[set[int]]) -> None:
    content, _ = puffin.encode([(f"s3://b/f{number}", BitMap64(one)) for number, one in enumerate(sets)])
    read = PuffinFile(content).to_vector()
    assert {path: set(positions.to_pylist()) for path, positions in read.items()} == {
        f"s3://b/f{number}": one for number, one in enumerate(sets)
    }


def test_the_footer_is_that_of_the_spec() -> None:
    content, (vector,) = puffin.encode([("s3://b/f", BitMap64([3, 5]))])
    assert content[:4] == content[-4:] == b"PFA1"
    (size,) = struct.unpack("<I", content[-12:-8])
    (blob,) = json.loads(content[-12 - size : -12])["blobs"]
    assert blob["type"] == "deletion-vector-v1"
    assert (blob["offset"], blob["length"]) == (vector.offset, vector.size)
    assert blob["properties"] == {"referenced-data-file": "s3://b/f", "cardinality": "2"}
    assert "compression-codec" not in blob


@settings(deadline=None)  # a busy machine is no fault of ours
@given(bitmaps, st.data())
def test_damage_is_found(one: set[int], data: st.DataObject) -> None:
    content, (vector,) = puffin.encode([("f", BitMap64(one))])
    blob = bytearray(content[vector.offset : vector.offset + vector.size])
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(blob) - 1))
        blob[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del blob[data.draw(st.integers(0, len(blob) - 1)) :]
    with pytest.raises(DecodeError, match="is damaged"):
        puffin.decode(bytes(blob))
