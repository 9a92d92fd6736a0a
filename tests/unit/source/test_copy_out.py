from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.source import copy_out
from tests.support.examples import examples

rows = st.lists(st.binary(max_size=40), max_size=20)


def framed(payloads):
    return b"".join(b"d" + struct.pack("!i", len(payload) + 4) + payload for payload in payloads)


@settings(max_examples=examples(100), deadline=None)
@given(rows=rows, cuts=st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_any_cut_of_the_stream_gives_the_same_rows(rows, cuts):
    stream = framed(rows) + b"c\0\0\0\4"
    target = np.zeros(len(stream) + 1, np.uint8)
    at = whole = missing = used_bytes = given_bytes = 0
    while used_bytes < len(stream) - 5:
        given_bytes = min(given_bytes + cuts[given_bytes % len(cuts)], len(stream))
        source = np.frombuffer(stream, np.uint8)[used_bytes:given_bytes]
        used, at, whole, missing = copy_out.unframe(source, target, at, whole, missing)
        used_bytes += used
        ends = set(np.cumsum([0, *map(len, rows)]).tolist())
        assert whole in ends
        assert whole <= at
    assert target[:at].tobytes() == b"".join(rows)
    assert (whole, missing) == (at, 0)


def test_it_stops_before_any_other_message():
    source = np.frombuffer(framed([b"a\n"]) + b"E\0\0\0\4" + framed([b"b\n"]), np.uint8)
    target = np.zeros(64, np.uint8)
    assert copy_out.unframe(source, target, 0, 0, 0) == (7, 2, 2, 0)


def test_a_length_that_cannot_be_is_told():
    source = np.frombuffer(framed([b"a\n"]) + b"d\0\0\0\3", np.uint8)
    assert copy_out.unframe(source, np.zeros(64, np.uint8), 0, 0, 0) == (7, 2, 2, -1)
