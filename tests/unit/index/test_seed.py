"""The half of a seed that the lake does not have."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kuvasz.index import seed


def test_a_folder_has_one_secret_for_good_whoever_asks_first(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "index"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(seed.secret_of, [folder] * 64))
    assert len(found) == 1
    assert seed.secret_of(folder) in found
    assert [one.name for one in folder.iterdir()] == [seed.NAME]
    assert seed.secret_of(tmp_path / "another") not in found


def test_a_volume_without_links_has_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    found = seed.secret_of(tmp_path)
    assert seed.secret_of(tmp_path) == found == (tmp_path / seed.NAME).read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == [seed.NAME]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    seed.secret_of(tmp_path / "index")
    assert stat.S_IMODE((tmp_path / "index").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "index" / seed.NAME).stat().st_mode) == 0o600


def test_where_it_cannot_be_kept_that_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("")
    with pytest.raises(OSError, match="index"):
        seed.secret_of(tmp_path / "index")
    assert [one.name for one in tmp_path.iterdir()] == ["index"]


def test_a_tables_seed_follows_from_both_halves() -> None:
    found = {seed.of_table(secret, public) for secret in (b"a", b"b") for public in (b"x" * 16, b"y" * 16)}
    assert len(found) == 4
    assert {len(one) for one in found} == {16}
    assert seed.of_table(b"a", b"x" * 16) == seed.of_table(b"a", b"x" * 16)


def test_a_mark_tells_seeds_apart_and_is_too_short_to_be_one() -> None:
    one, other = seed.mark(b"x" * 16), seed.mark(b"y" * 16)
    assert one != other
    assert len(bytes.fromhex(one)) == 8


def test_another_secret_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    before = seed.secret_of(tmp_path)
    seed.replace(tmp_path, before)
    assert seed.secret_of(tmp_path) == before
    seed.replace(tmp_path, b"of all")
    assert seed.secret_of(tmp_path) == b"of all"
    assert (tmp_path / seed.NAME).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [seed.NAME]
