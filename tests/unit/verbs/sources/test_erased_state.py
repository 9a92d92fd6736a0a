from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.lake.executors.spool import Spool
from kuvasz.parking.log_folder import LogFolder
from kuvasz.parking.reach import Reach
from kuvasz.state.copies.ledger_file import LedgerFile
from kuvasz.verbs.sources import erased_state
from tests.support.maps import loaded
from tests.support.opened_files import holding

MAP = """\
lake: {{uri: "jdbc:sqlite:{folder}/catalog.db", warehouse: {folder}/wh}}
spark:
  master: "spark://m:7077"
  conf: {{spark.authenticate: "true", spark.authenticate.secret: "0123456789abcdef"}}
pipeline: {{state: {folder}/state}}
databases:
- {{database: shop, urls: [{{url: "postgresql:///a"}}], tables: {{items: }}}}
"""


def test_the_spool_of_a_cluster_is_emptied_however_new_its_files_are(tmp_path: Path) -> None:
    """Where Spark is a cluster it lies in the warehouse: what a kill left there is rows as the source sent them."""
    config = loaded(tmp_path, MAP.format(folder=tmp_path)).config
    path, _ = Spool(f"file://{tmp_path}/wh/_kuvasz_spool", {}).write([b"a row"])
    assert Path(path.removeprefix("file://")).is_file()
    assert erased_state.clear_spool(config) == 1
    assert not Path(path.removeprefix("file://")).exists()


#: Stands in the facts of a file that a copy has written, which have the smallest and greatest keys of its rows.
PLANTED = "Quittenmus"


@pytest.mark.parametrize(
    ("tables", "sources", "left"),
    [
        ({"shop.items": {}}, (), ["shop.notes shop_de"]),  # the files of all copies are gone with the row's
        ({}, ("shop_de",), ["shop.items shop_fr"]),  # the lake may have no such table any more
    ],
)
def test_what_a_copy_that_was_cut_off_has_noted_of_keys_is_forgotten(
    tmp_path: Path, tables: dict[str, dict[str, str]], sources: tuple[str, ...], left: list[str]
) -> None:
    config = loaded(tmp_path, MAP.format(folder=tmp_path)).config
    folder = config.pipeline.state_folder
    for target, source in (("shop.items", "shop_de"), ("shop.items", "shop_fr"), ("shop.notes", "shop_de")):
        made = f"{target} {source}" if f"{target} {source}" in left else PLANTED
        LedgerFile(folder, target, source).begin({}, {0: made})
    (folder / "copies" / "torn.jsonl").write_text(PLANTED)
    (folder / "copy" / "x").mkdir(parents=True)
    (folder / "copy" / "x" / "keys.npy").write_text(PLANTED)

    found = erased_state.forget(config, tables, sources)
    assert found["copies"] == 4 - len(left)
    assert holding(folder, PLANTED) == []
    assert [one for one in left if holding(folder, one)] == left


def test_nothing_of_a_source_that_is_erased_says_how_far_its_parked_changes_went(tmp_path: Path) -> None:
    config = loaded(tmp_path, MAP.format(folder=tmp_path)).config
    logs, folder = LogFolder(config.pipeline.state_folder), config.pipeline.state_folder
    for target, source in (("shop.items", "shop_de"), ("shop.gone", "shop_de"), ("shop.items", "shop_fr")):
        logs.create(target, source).close()
        logs.reach(target, source).note(Reach("f" * 32, 7))
    assert erased_state.forget(config, {"shop.items": {"sources": ["shop_de"]}}, ("shop_de",))["parked"] == 1
    found = sorted(str(path.relative_to(folder).parent) for path in folder.rglob("shop.*"))
    assert found == ["parked/shop_fr", "reach/shop_fr"]


def test_indexes_in_the_store_go_as_those_here(tmp_path: Path) -> None:
    cluster = f"cluster: {{coordinator: 'postgresql://h/c', indexes: {tmp_path}/indexes}}\n"
    config = loaded(tmp_path, MAP.format(folder=tmp_path) + cluster).config
    for uuid in ("gone", "stays"):
        for folder in (tmp_path / "indexes" / uuid, config.pipeline.state_folder / "index" / uuid):
            folder.mkdir(parents=True)
            (folder / "a.run").touch()
    assert erased_state.drop_indexes(config, ["gone", "none"]) == 1
    assert [str(file.relative_to(tmp_path / "indexes")) for file in (tmp_path / "indexes").rglob("*.run")] == [
        "stays/a.run"
    ]
