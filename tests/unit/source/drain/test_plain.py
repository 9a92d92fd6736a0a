"""The plain body of the drain; both bodies are tried on a server."""

from __future__ import annotations

from typing import Any

import pytest

from kuvasz.source.drain import plain as module
from kuvasz.source.drain.best import best_drain
from kuvasz.source.drain.plain import PlainDrain


class Connection:
    """What has arrived, and what comes in with each look at the socket."""

    def __init__(self, arrived: list[bytes], *looks: list[bytes], ends: bool = False) -> None:
        self._arrived, self._looks, self._ends = arrived, list(looks), ends
        self.looked = 0

    def get_copy_data(self, is_async: int) -> tuple[int, bytes]:
        assert is_async == 1
        if self._arrived:
            payload = self._arrived.pop(0)
            return len(payload), payload
        return (-1, b"") if self._ends and not self._looks else (0, b"")

    def consume_input(self) -> None:
        self.looked += 1
        if self._looks:
            self._arrived += self._looks.pop(0)


def plain(*given: Any, **more: Any) -> tuple[PlainDrain, Connection]:
    connection: Any = Connection(*given, **more)
    found = best_drain(connection)
    assert isinstance(found, PlainDrain), "where libpq's functions cannot be had"
    assert isinstance(best_drain(connection, compiled=False), PlainDrain)
    return found, connection


def test_all_that_has_arrived_is_taken_and_the_socket_looked_at_until_it_is_empty() -> None:
    found, connection = plain([b"one"], [b"two", b"three"], [])
    assert found.drain(1 << 20) == 11
    payloads, lengths = found.gulp()
    assert (bytes(payloads), lengths.tolist()) == (b"onetwothree", [3, 3, 5])
    assert connection.looked == 2
    assert found.drain(1 << 20) == 0
    assert found.bytes == 11


@pytest.mark.parametrize(("limit", "taken"), [(1, 3), (3, 3), (4, 6), (100, 11)])
def test_it_stops_with_the_message_that_reaches_the_limit(limit: int, taken: int) -> None:
    found, _ = plain([b"one", b"two", b"three"])
    assert found.drain(limit) == taken


def test_a_gulp_of_tiny_messages_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGES", 2)
    found, _ = plain([b"a", b"b", b"c"])
    assert found.drain(100) == 2
    found.clear()
    assert found.drain(100) == 1


def test_the_end_of_a_stream_is_seen_behind_its_last_message() -> None:
    found, _ = plain([b"last"], ends=True)
    assert found.drain(100) == 4
    assert found.is_ended
    assert not found.is_lost


def test_a_gulp_that_is_cleared_leaves_the_one_that_was_given_out() -> None:
    found, _ = plain([b"one"])
    found.drain(100)
    payloads, _ = found.gulp()
    found.clear()
    assert bytes(payloads) == b"one"
    assert (found.bytes, bytes(found.gulp()[0])) == (0, b"")
