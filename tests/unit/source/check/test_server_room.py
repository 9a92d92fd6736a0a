from __future__ import annotations

from kuvasz.source.check import server_room
from kuvasz.sync.context import source_threads


def test_a_server_that_does_not_answer_is_left_to_the_checks_of_its_sources() -> None:
    assert server_room.check_server("postgresql://nobody@127.0.0.1:1/shop", [], 1) == []


def test_what_is_counted_is_what_there_is_at_most() -> None:
    assert server_room.SESSIONS == source_threads._MOST_OF_A_SERVER
    assert server_room.SNAPSHOTS == source_threads._SNAPSHOTS
