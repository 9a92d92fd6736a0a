from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.errors import ConfigError
from kuvasz.verbs.sources import row_erasing
from kuvasz.verbs.sources.row_erasing import ErasureRequest

MAP = """\
lake: {uri: "jdbc:sqlite:catalog.db", warehouse: wh}
pipeline: {state: state}
databases:
- database: shop
  urls: [{url: "postgresql://a/x", sid: de}]
  tables: {items: }
"""


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (ErasureRequest(table=None, key=("7",)), "a row needs its table and its key"),
        (ErasureRequest(table="items", key=()), "a row needs its table and its key"),
        (ErasureRequest(table="items", key=("7",)), "the lake has no table 'items' of the map"),
        (ErasureRequest(table="nix", key=("7",)), "the lake has no table 'nix' of the map"),
    ],
)
def test_nothing_is_done_for_a_row_that_nobody_can_mean(tmp_path: Path, asked: ErasureRequest, why: str) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    config = load(file, {}).config
    with pytest.raises(ConfigError, match=why):
        row_erasing.run(config, asked, is_sure=True)
    assert [path.name for path in tmp_path.iterdir()] == ["map.yaml"]
