"""A piece of a slot's stream, cut at an LSN, from a connection that says what a test wants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import pq

from kuvasz.errors import SlotLost, SourceError
from kuvasz.model import Segment
from kuvasz.source import window
from kuvasz.source.window import Window, split
from tests.support import pgoutput
from tests.support.changes import Sender, insert
from tests.support.pgoutput import begin, commit, keepalive, relation, row


def lsns(change: Any) -> list[int]:
    return [] if change is None else change.transactions.commit_lsn.tolist()


@pytest.mark.parametrize(("end", "earlier", "later"), [
    (1000, [], [1100, 1200, 1300]), (1100, [], [1100, 1200, 1300]), (1101, [1100], [1200, 1300]),
    (1300, [1100, 1200], [1300]), (1301, [1100, 1200, 1300], []),
])  # fmt: skip
def test_a_segment_is_cut_between_transactions(end: int, earlier: list[int], later: list[int]) -> None:
    segment = Sender().transactions([insert(1), insert(2)], [insert(3)], [insert(4)])
    before, behind = split(segment, end)
    assert (lsns(before), lsns(behind)) == (earlier, later)
    parts = [part for part in (before, behind) if isinstance(part, Segment)]
    assert [one for part in parts for one in pgoutput.rows_of(part)] == pgoutput.rows_of(segment)


def test_a_truncation_is_on_one_side() -> None:
    gone = Sender().truncation()
    assert split(gone, gone.commit_lsn) == (None, gone)
    assert split(gone, gone.commit_lsn + 1) == (gone, None)


class Server:
    """A connection in COPY_BOTH mode, and its drain."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *gulps: list[bytes]) -> None:
        self.gulps = list(gulps)
        self.sent: list[str] = []
        self.asked = 0
        self.finished = 0
        self.status = pq.ExecStatus.COPY_BOTH
        self.is_ended = self.is_lost = False
        self.held: list[bytes] = []
        self.socket, self.nonblocking = 0, 0
        monkeypatch.setattr(window, "best_drain", lambda _: self)
        poll = SimpleNamespace(register=lambda *_: None, poll=lambda _: None)
        monkeypatch.setattr(window, "select", SimpleNamespace(poll=lambda: poll, POLLIN=1))

    # The session

    def send_query(self, command: bytes) -> None:
        self.sent.append(command.decode())

    def is_busy(self) -> bool:
        return False

    def get_result(self) -> Any:
        text = b'replication slot "kuvasz_shop" does not exist'
        return SimpleNamespace(status=self.status, error_field=lambda _: b"42704", get_error_message=text.decode)

    def put_copy_data(self, _: bytes) -> None:
        self.asked += 1

    def flush(self) -> int:
        return 0

    def get_error_message(self) -> str:
        return "server closed the connection unexpectedly\n"

    def finish(self) -> None:
        self.finished += 1

    # The drain

    def drain(self, _: int) -> int:
        self.held = self.gulps.pop(0) if self.gulps else []
        return sum(map(len, self.held))

    def gulp(self) -> Any:
        return pgoutput.gulp(self.held)

    def clear(self) -> None:
        self.held = []


def opened(server: Server) -> Window:
    session: Any = server
    return Window(session, "kuvasz_shop", ["kuvasz_shop", "o'hara"], 1, lambda _: {}, "shop")


STREAM = [
    [begin(100), relation(1), row(1, "a"), commit(100, 148), relation(2, "other"), begin(200), row(1, "b")],
    [row(2, "not asked for"), commit(200, 248), begin(300), row(1, "c"), commit(300, 348)],
    [keepalive(400)],
]


def test_the_tables_changes_before_an_lsn_are_read_and_the_others_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, *STREAM)
    read = opened(server)
    (command,) = server.sent
    assert command.startswith('START_REPLICATION SLOT "kuvasz_shop" LOGICAL 0/0 ')
    assert "'\"kuvasz_shop\",\"o''hara\"'" in command

    def texts(end: int) -> list[str]:
        return [text for change in read.read(end) if isinstance(change, Segment) for text in pgoutput.texts(change)]

    assert texts(300) == ["a", "b"]
    assert texts(300) == []
    assert texts(400) == ["c"]
    assert server.asked > 0, "an idle server tells its LSN when it is asked"
    read.close()
    assert server.finished == 1


def test_changes_from_before_a_table_was_renamed_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages have the name that a table had at their time, and another table may have taken that by now."""
    server = Server(
        monkeypatch,
        [begin(100), relation(1, "before"), row(1, "a"), commit(100, 148)],
        [begin(200), relation(1, "after"), row(1, "b"), relation(2, "before"), row(2, "other"), commit(200, 248)],
        [keepalive(300)],
    )
    read = [text for change in opened(server).read(300) if isinstance(change, Segment)
            for text in pgoutput.texts(change)]  # fmt: skip
    assert read == ["a", "b"]


def test_a_slot_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.status = pq.ExecStatus.FATAL_ERROR
    with pytest.raises(SlotLost, match="source shop: "):
        opened(server)


def test_a_stream_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.is_ended = True
    with pytest.raises(SourceError) as caught:
        list(opened(server).read(100))
    told = "source shop: cannot stream slot kuvasz_shop: server closed the connection unexpectedly"
    assert (caught.value.message, caught.value.hint) == (told, "run it again")


def test_a_server_that_says_nothing_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_SILENCE_S", 0.0)
    with pytest.raises(SourceError, match="nothing came for 0 s"):
        list(opened(Server(monkeypatch)).read(100))
