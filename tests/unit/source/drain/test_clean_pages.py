from __future__ import annotations

import ctypes
import mmap
import sys

import pytest

from kuvasz.source.drain import clean_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux")


def resident(block: int) -> int:
    """Return how many of the pages that lie within a buffer are in memory (mincore(2))."""
    begin = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = (block + clean_pages._BUFFER_BYTES - begin) // mmap.PAGESIZE
    found = (ctypes.c_ubyte * pages)()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(pages * mmap.PAGESIZE), found) == 0
    return sum(found)


def test_what_was_written_and_freed_is_given_again_with_nothing_in_it() -> None:
    library = clean_pages._library()
    assert library is not None

    def take() -> list[int]:
        return [library.malloc(clean_pages._BUFFER_BYTES) for _ in range(2)]

    def spoiled_and_taken_again(*, is_room_made: bool) -> int:
        blocks = take()
        for block in blocks:
            ctypes.memset(block, 1, clean_pages._BUFFER_BYTES)
        for block in reversed(blocks):
            library.free(block)
        if is_room_made:
            clean_pages.make_room()
        blocks = take()
        found = sum(map(resident, blocks))
        for block in blocks:
            library.free(block)
        return found

    # Another thread may take a block in between.
    assert min(spoiled_and_taken_again(is_room_made=True) for _ in range(20)) <= 1
    assert max(spoiled_and_taken_again(is_room_made=False) for _ in range(20)) >= 6


def test_without_a_library_that_gives_pages_back_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_pages, "_library", lambda: None)
    clean_pages.make_room()
