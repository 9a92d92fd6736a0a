"""What is decided before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.lake.jvm import spark, versions


def test_jars_are_found_where_java_keeps_them_whatever_home_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else each start would resolve them again, over the network."""
    here = [spark._cached(coordinate) for coordinate in versions.CORE]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [spark._cached(coordinate) for coordinate in versions.CORE] == here
    assert all(here), "`make jars` brings them"
