"""Versions: of what is installed, and of the sources that answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kuvasz import __version__
from kuvasz.verbs.support import versions
from tests.support.maps import SHOP, loaded


def test_everything_that_kuvasz_runs_on_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loaded(tmp_path).config
    (told,) = versions.gather(config).files.values()
    assert told["kuvasz"] == __version__
    assert told["spark"].startswith("4.")
    assert {"pyspark", "psycopg", "pyiceberg", "pyarrow"} <= {name.lower() for name in told["packages"]}
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (told,) = versions.gather(config).files.values()
    assert told["java"].startswith("no java")


def test_a_source_that_is_away_is_named_and_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(tmp_path, SHOP.replace("eu1/", "127.0.0.1:1/")).config
    found = versions.sources(config, 30)
    assert found.notes == ("1 of 1 sources do not answer: shop_eu",)
    assert "error" in found.files["sources.json"]["shop_eu"]
    assert not found.is_under_way

    monkeypatch.setattr(versions, "_server", lambda _: time.sleep(5))
    found = versions.sources(config, 0.1)
    assert found.notes == ("1 of 1 sources did not answer in time: shop_eu",)
    assert found.is_under_way
