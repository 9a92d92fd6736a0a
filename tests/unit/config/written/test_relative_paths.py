"""Paths that begin where a map is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config import load
from kuvasz.config.written import relative_paths
from kuvasz.errors import ConfigError

WHOLE = 'lake: {uri: "jdbc:sqlite:/a/c.db", warehouse: /a/lake}\npipeline: {state: /a/state}\n'
GROUP = "databases: [{database: shop, urls: [{url: postgresql://a/x}], tables: {items: }}]\n"


def test_a_map_in_no_folder_has_whole_paths_alone() -> None:
    relative_paths.refuse(load.of_text(WHOLE + GROUP, {}, Path()), "here")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("/a/lake", "lake"), "lake.warehouse: "),
        (("/a/c.db", "c.db"), "lake.uri: "),
        (("pipeline: {state: /a/state}", ""), "pipeline.state: "),
    ],
)
def test_each_relative_path_is_named(changed: tuple[str, str], told: str) -> None:
    config = load.of_text(WHOLE.replace(*changed) + GROUP, {}, Path())
    with pytest.raises(ConfigError, match=f"^here: {told}a relative path"):
        relative_paths.refuse(config, "here")
