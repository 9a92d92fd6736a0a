from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz import errors
from kuvasz.decode import messages

RELATION = (
    b"R" + struct.pack("!I", 16384) + b"public\0orders\0d" + struct.pack("!H", 2)
    + b"\1id\0" + struct.pack("!Ii", 20, -1) + b"\0price\0" + struct.pack("!Ii", 1700, 786438)
)  # fmt: skip
SAMPLES = [
    b"B" + struct.pack("!QqI", 100, 5, 7),
    b"C\0" + struct.pack("!QQq", 100, 148, 5),
    RELATION,
    b"Y" + struct.pack("!I", 99) + b"public\0mood\0",
    b"T" + struct.pack("!IBII", 2, 3, 16384, 16385),
    b"O" + struct.pack("!Q", 9) + b"elsewhere\0",
    b"M\1" + struct.pack("!Q", 8) + b"prefix\0" + struct.pack("!I", 3) + b"abc",
]


def test_begin_and_commit():
    assert messages.parse(SAMPLES[0]) == messages.Begin(final_lsn=100, commit_us=5, xid=7)
    assert messages.parse(SAMPLES[1]) == messages.Commit(commit_lsn=100, end_lsn=148, commit_us=5)


def test_relation_with_its_columns():
    assert messages.parse(RELATION) == messages.RelationShape(
        oid=16384, schema="public", name="orders", identity="d",
        columns=(
            messages.ColumnShape(name="id", type_oid=20, typmod=-1, is_key=True),
            messages.ColumnShape(name="price", type_oid=1700, typmod=786438, is_key=False),
        ),
    )  # fmt: skip


def test_the_empty_namespace_is_pg_catalog():
    shape = messages.parse(b"Y" + struct.pack("!I", 25) + b"\0text\0")
    assert shape == messages.TypeName(oid=25, schema="pg_catalog", name="text")


def test_type_truncate_origin_and_logical_message():
    assert messages.parse(SAMPLES[3]) == messages.TypeName(oid=99, schema="public", name="mood")
    assert messages.parse(SAMPLES[4]) == messages.Truncate(
        relation_oids=(16384, 16385), is_cascade=True, is_restart_identity=True
    )
    assert messages.parse(SAMPLES[5]) == messages.ReplicationOrigin(commit_lsn=9, name="elsewhere")
    assert messages.parse(SAMPLES[6]) == messages.LogicalMessage(
        is_transactional=True, message_lsn=8, prefix="prefix", content=b"abc"
    )


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: chr(sample[0]))
def test_a_message_cut_short_or_too_long_is_refused(sample: bytes):
    for size in range(len(sample)):
        with pytest.raises(errors.DecodeError):
            messages.parse(sample[:size])
    with pytest.raises(errors.DecodeError):
        messages.parse(sample + b"\0")


@given(st.sampled_from(SAMPLES), st.integers(0, 60), st.binary(max_size=80))
def test_arbitrary_bytes_raise_only_decode_errors(sample: bytes, keep: int, noise: bytes):
    for parse in (messages.parse, messages.parse_keepalive):
        with contextlib.suppress(errors.DecodeError):
            assert parse(sample[:keep] + noise) is not None


@pytest.mark.parametrize("message", [
    b"Y" + struct.pack("!I", 99) + b"public\0%b\0",
    b"R" + struct.pack("!I", 99) + b"%b\0t\0d" + struct.pack("!H", 0),
    b"R" + struct.pack("!I", 99) + b"public\0%b\0d" + struct.pack("!H", 0),
    b"R" + struct.pack("!I", 99) + b"public\0t\0d\0\1\1%b\0" + struct.pack("!Ii", 25, -1),
])  # fmt: skip
def test_a_name_that_no_server_has_is_refused(message: bytes):
    """It would be kept for as long as the connection lasts."""
    assert messages.parse(message % (b"n" * 4095)) is not None
    with pytest.raises(errors.DecodeError, match="a name of 4096 bytes"):
        messages.parse(message % (b"n" * 4096))


def test_an_unknown_tag_is_named():
    with pytest.raises(errors.DecodeError, match=r"^unexpected replication message with tag b'S'\n"):
        messages.parse(b"S1234")


def test_keepalive():
    data = b"k" + struct.pack("!QqB", 1 << 40, 77, 1)
    assert messages.parse_keepalive(data) == messages.Keepalive(end_lsn=1 << 40, sent_us=77, is_reply_wanted=True)


def test_status_update_says_flushed_twice_and_never_less_written():
    data = messages.status_update(written=5, flushed=10, now_us=3, is_reply_wanted=True)
    assert data == b"r" + struct.pack("!QQQqB", 10, 10, 10, 3, 1)
