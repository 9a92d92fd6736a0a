from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.errors import ConfigError
from kuvasz.parking.log_folder import LogFolder
from kuvasz.verbs.sources import row_erasing
from kuvasz.verbs.sources.row_erasing import ErasureRequest
from tests.support.changes import Sender, insert

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


def test_a_parking_log_of_which_the_table_knows_nothing_is_no_place_for_the_row(tmp_path: Path) -> None:
    """Who restored an older catalog took the table's note of it; a kill may have left one whose changes are there."""
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    config = load(file, {}).config
    (target,) = config_sources.targets(config)
    row_erasing._refuse_logs(config, target)
    log = LogFolder(config.pipeline.state_folder).create(target.identifier, "shop_de")
    row_erasing._refuse_logs(config, target)
    log = LogFolder(config.pipeline.state_folder).create(target.identifier, "shop_de")
    log.append([Sender("shop_de").one(insert(1))], 1108, is_open=False, most_bytes=1 << 20)
    with pytest.raises(ConfigError, match=r"kuvasz\.items: changes of shop_de are parked, perhaps of the row"):
        row_erasing._refuse_logs(config, target)
    log.finish()
    log.close()
    row_erasing._refuse_logs(config, target)
    assert not Path(log.place).exists()
    log = LogFolder(config.pipeline.state_folder).create(target.identifier, "shop_de")
    log.append([Sender("shop_de").one(insert(1))], 1108, is_open=False, most_bytes=1 << 20)
    log.close()
    with Path(log.place).open("r+b") as stream:
        stream.write(b"?")  # it is no log any more, and perhaps what was one
    with pytest.raises(ConfigError, match="are parked"):
        row_erasing._refuse_logs(config, target)
