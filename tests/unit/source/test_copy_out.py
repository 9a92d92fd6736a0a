from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import pq

from kuvasz.errors import SourceError, SourceSlow
from kuvasz.ports import CopyTooLarge
from kuvasz.source import conninfo, copy_out
from tests.support.examples import examples

rows = st.lists(st.binary(max_size=40), max_size=20)


def framed(payloads):
    return b"".join(b"d" + struct.pack("!i", len(payload) + 4) + payload for payload in payloads)


@settings(max_examples=examples(100), deadline=None)
@given(rows=rows, cuts=st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_any_cut_of_the_stream_gives_the_same_rows(rows, cuts):
    stream = framed(rows) + b"c\0\0\0\4"
    target = np.zeros(len(stream) + 1, np.uint8)
    at = whole = missing = used_bytes = given_bytes = begun = 0
    while used_bytes < len(stream) - 5:
        given_bytes = min(given_bytes + cuts[given_bytes % len(cuts)], len(stream))
        source = np.frombuffer(stream, np.uint8)[used_bytes:given_bytes]
        used, at, whole, missing, new = copy_out.unframe(source, target, at, whole, missing)
        used_bytes += used
        begun += new
        ends = set(np.cumsum([0, *map(len, rows)]).tolist())
        assert whole in ends
        assert whole <= at
    assert target[:at].tobytes() == b"".join(rows)
    assert (whole, missing, begun) == (at, 0, len(rows))


def test_it_stops_before_any_other_message():
    source = np.frombuffer(framed([b"a\n"]) + b"E\0\0\0\4" + framed([b"b\n"]), np.uint8)
    target = np.zeros(64, np.uint8)
    assert copy_out.unframe(source, target, 0, 0, 0) == (7, 2, 2, 0, 1)


@pytest.mark.parametrize("length", [3, 0, (1 << 30) + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_told(length: int):
    """Of a row that is said to have gigabytes all would be kept until the last."""
    source = np.frombuffer(framed([b"a\n"]) + b"d" + struct.pack("!I", length) + b"a", np.uint8)
    assert copy_out.unframe(source, np.zeros(64, np.uint8), 0, 0, 0) == (7, 2, 2, -1, 1)


#: With 3 digits: how many rows there were.
END = b"c\0\0\0\4C\0\0\0\x0dCOPY %b\0Z\0\0\0\5I"


@pytest.mark.parametrize("told", [b"001", b"003", b"no."])
def test_rows_that_are_lost_or_come_twice_are_told(told: bytes):
    """Nothing else would: without TLS what stands between may drop a whole message, or say it again."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(framed([b"1\n", b"2\n"]) + END % told)
        flow = copy_out.Flow("there", "copy items")
        pgconn = SimpleNamespace(socket=ours.fileno())
        reader = copy_out._CopyReader(pgconn, place="there", doing="copy items", pace=None, flow=flow)
        with pytest.raises(SourceError, match="there: cannot copy items: 2 rows came, and the server says that it"):
            list(reader.rows("COPY items TO STDOUT", 1 << 20))


SAID = [framed([b"a"]), b"N" + struct.pack("!i", 4)]
LITTLE = r"there: cannot copy items: less than 64 kB of rows came .* in 0\.3 s"


@pytest.mark.parametrize(
    ("said", "is_hurried", "why"),
    [*((said, False, LITTLE) for said in SAID), *((said, True, "its rows come slowly") for said in [*SAID, b""])],
)
def test_a_server_that_sends_next_to_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, said: bytes, is_hurried: bool, why: str
):
    """It would keep the turn to copy from all others for as long as it likes; remarks are no rows."""
    monkeypatch.setattr(copy_out, "HURRY_S" if is_hurried else "SILENCE_S", 0.3)
    ours, theirs = socket.socketpair()
    is_over = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not is_over.wait(0.02):
                theirs.sendall(said)

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    pgconn = SimpleNamespace(socket=ours.fileno())
    flow = copy_out.Flow("there", "copy items", is_hurried=is_hurried)
    reader = copy_out._CopyReader(pgconn, place="there", doing="copy items", pace=None, flow=flow)
    stop = threading.Timer(60, theirs.close)
    stop.start()
    try:
        with pytest.raises(SourceSlow if is_hurried else SourceError, match=why):
            list(reader.rows("COPY items TO STDOUT", 1 << 20))
    finally:
        stop.cancel()
        is_over.set()
        thread.join()
        ours.close()
        theirs.close()


def test_a_server_that_rests_now_and_then_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(copy_out, "SILENCE_S", 0.5)
    ours, theirs = socket.socketpair()
    row = b"x" * 999 + b"\n"

    def send() -> None:
        for _ in range(10):
            theirs.sendall(framed([row] * 70))
            time.sleep(0.1)
        theirs.sendall(END % b"700")

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    pgconn = SimpleNamespace(socket=ours.fileno())
    flow = copy_out.Flow("there", "copy items")
    reader = copy_out._CopyReader(pgconn, place="there", doing="copy items", pace=None, flow=flow)
    found = sum(len(chunk) for chunk in reader.rows("COPY items TO STDOUT", 1 << 20))
    thread.join()
    ours.close()
    theirs.close()
    assert found == 10 * 70 * len(row)


def test_a_row_of_which_nobody_wants_as_much_is_given_up_before_it_is_there():
    ours, theirs = socket.socketpair()
    sent = 0

    def send() -> None:
        nonlocal sent
        with contextlib.suppress(OSError):
            theirs.sendall(b"d" + struct.pack("!I", 500 << 20))
            while sent < 500 << 20:
                theirs.sendall(b"x" * (1 << 20))
                sent += 1 << 20

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    flow = copy_out.Flow("there", "copy items", most_bytes=2 << 20)
    pgconn = SimpleNamespace(socket=ours.fileno())
    reader = copy_out._CopyReader(pgconn, place="there", doing="copy items", pace=None, flow=flow)
    try:
        with pytest.raises(CopyTooLarge):
            list(reader.rows("COPY items TO STDOUT", 1 << 20))
    finally:
        ours.close()
        theirs.close()
        thread.join()
    assert sent < 20 << 20


def test_the_same_where_libpq_keeps_a_row_until_it_is_whole(monkeypatch: pytest.MonkeyPatch):
    received = 1 << 30  # of the connection, before the copy
    ours, theirs = socket.socketpair()
    theirs.sendall(b"x")

    def consume_input() -> None:
        nonlocal received
        received += 1 << 20
        assert received < 1 << 31

    copying = SimpleNamespace(status=pq.ExecStatus.COPY_OUT)
    pgconn = SimpleNamespace(
        socket=ours.fileno(), send_query=lambda _: None, is_busy=lambda: False, get_result=lambda: copying,
        get_copy_data=lambda _: (0, b""), consume_input=consume_input, notifies=lambda: None,
    )  # fmt: skip
    monkeypatch.setattr(conninfo, "received", lambda _: received)
    flow = copy_out.Flow("there", "copy items", most_bytes=2 << 20)
    with contextlib.closing(ours), contextlib.closing(theirs), pytest.raises(CopyTooLarge):
        list(copy_out.libpq_rows(pgconn, "COPY items TO STDOUT", 1 << 20, place="there", doing="", flow=flow))
    assert received < (1 << 30) + (20 << 20)
