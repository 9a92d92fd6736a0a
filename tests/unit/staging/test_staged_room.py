from __future__ import annotations

from kuvasz.staging.staged_room import StagedRoom


def test_what_waits_is_known_by_source() -> None:
    room = StagedRoom(10)
    room.note("eu", 6)
    room.note("us", 0)
    assert (room.bytes, room.is_there, room.sources()) == (6, True, ["eu", "us"])
    room.note("eu", 12)
    assert (room.bytes, room.is_there) == (12, False)
    room.note("eu", None)
    room.note("eu", None)
    assert (room.bytes, room.is_there, room.sources()) == (0, True, ["us"])
