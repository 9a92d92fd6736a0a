"""The archive: its name, its modes, and nothing secret whatever JSON makes of it."""

from __future__ import annotations

import datetime
import json
import stat
import tarfile
from pathlib import Path

import pytest

from kuvasz.config.secrets import Redactor
from kuvasz.errors import ConfigError
from kuvasz.verbs.support import archive
from tests.support.maps import SHOP, loaded

AT = datetime.datetime(2026, 11, 25, 21, 34, 52, tzinfo=datetime.UTC)


def test_it_is_called_by_group_and_time(tmp_path: Path) -> None:
    config = loaded(tmp_path).config
    assert archive.name(config, AT) == "kuvasz-support-shop-20261125T213452Z"
    odd = SHOP.replace("shop", "a/b ü", 1) + SHOP.partition("\n")[2].replace("sid: eu", "sid: us")
    assert archive.name(loaded(tmp_path, odd).config, AT) == "kuvasz-support-a_b_-and-1-more-20261125T213452Z"


def test_it_goes_where_it_is_told(tmp_path: Path) -> None:
    assert archive.place("one", None) == Path("one.tar.gz")
    assert archive.place("one", tmp_path) == tmp_path / "one.tar.gz"
    assert archive.place("one", tmp_path / "other.tgz") == tmp_path / "other.tgz"


def test_a_secret_that_json_would_write_otherwise_is_hidden_in_values_and_names() -> None:
    secret = 'quoted"back\\slash\nline'
    files = archive.rendered({"a.json": {"x": [f"in {secret}"], secret: 1}, "b.txt": secret}, Redactor({secret}))
    assert json.loads(files["a.json"]) == {"x": ["in ***"], "***": 1}
    assert files["b.txt"] == b"***"
    assert archive.rendered({"c": "postgresql://me:pw@host/db"}, Redactor()) == {"c": b"postgresql://me:***@host/db"}


def test_its_owner_alone_reads_it_and_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "one.tar.gz"
    archive.write(path, "one", {"a.txt": b"text"}, AT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as found:
        (entry,) = found.getmembers()
        assert (entry.name, entry.mode, entry.mtime) == ("one/a.txt", 0o600, AT.timestamp())
        assert (entry.uname, entry.gname) == ("", "")
    with pytest.raises(ConfigError, match=r"it is there already"):
        archive.write(path, "one", {}, AT)
    with pytest.raises(ConfigError, match=r"no such file"):
        archive.write(tmp_path / "none" / "one.tar.gz", "one", {}, AT)
