from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config.load import Loaded, load
from kuvasz.errors import ConfigError
from kuvasz.lake.erasure.journal import Journal
from kuvasz.state.store import state_of
from kuvasz.verbs.sources import erasing

MAP = """\
pipeline: {state: state}
databases:
- database: shop
  urls:
  - {url: "postgresql://a/x", sid: de}
  - {url: "postgresql://b/x", sid: fr}
  tables: {items: , notes: {target: other.notes}}
- database: stock
  urls: [{url: "postgresql://c/x", sid: de}]
  tables: {bins: }
- database: alone
  urls: [{url: "postgresql://d/x"}]
  tables: {single: }
"""


DE = SourceSelection(sid="de", database="shop")


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return load(file, {})


@pytest.mark.parametrize(
    ("choice", "sid", "databases", "mapped"),
    [
        (SourceSelection(sid="de"), "de", ("shop", "stock"), ("shop_de", "stock_de")),
        (SourceSelection(sid="de", database="shop"), "de", ("shop",), ("shop_de",)),
        (SourceSelection(sid="shop_de"), "de", ("shop",), ("shop_de",)),
        (SourceSelection(sid="gone", database="shop"), "gone", ("shop",), ()),
        (SourceSelection(sid="gone"), "gone", ("shop", "stock", "alone"), ()),
        (SourceSelection(sid="shop_x", database="shop"), "shop_x", ("shop",), ()),
    ],
)
def test_who_is_meant(
    loaded: Loaded, choice: SourceSelection, sid: str, databases: tuple[str, ...], mapped: tuple[str, ...]
) -> None:
    found = erasing.tenant_of(loaded.config, choice)
    assert (found.sid, found.databases, found.mapped) == (sid, databases, mapped)


def test_a_table_that_is_left_out_for_a_while_is_erased_from_as_well(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(MAP.replace("{items: ,", "{items: {enabled: false},"))
    config = load(file, {}).config
    found = {target.name: target.has_sid for target in erasing.targets_of(config, erasing.tenant_of(config, DE))}
    assert found == {"kuvasz.items": True, "other.notes": True}


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (SourceSelection(database="shop"), "which source"),
        (SourceSelection(sid="d*"), "which source"),
        (SourceSelection(sid="de", database="s*"), "which source"),
        (SourceSelection(sid="shop_gone"), "is that its name"),
        (SourceSelection(sid="alone"), "has no sid of its own"),
        (SourceSelection(sid="de", database="nix"), "the map has no"),
    ],
)
def test_who_cannot_be_meant(loaded: Loaded, choice: SourceSelection, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        erasing.tenant_of(loaded.config, choice)


def test_targets_are_those_of_its_groups_whether_it_left_or_not(loaded: Loaded) -> None:
    for sid in ("de", "gone"):
        tenant = erasing.Tenant(sid=sid, databases=("shop", "stock"))
        found = {target.name: target.has_sid for target in erasing.targets_of(loaded.config, tenant)}
        assert found == {"kuvasz.items": True, "other.notes": True, "kuvasz.bins": True}


def test_a_group_that_is_left_without_sources_has_its_targets_still(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("map: {writable: true}\ndatabases: [{database: shop, urls: [], tables: {items: }}]\n")
    tenant = erasing.Tenant(sid="de", databases=("shop",))
    (target,) = erasing.targets_of(load(file, {}).config, tenant)
    assert (target.name, target.has_sid) == ("kuvasz.items", True)


def test_targets_that_patterns_took_in_for_it_alone_are_known_when_it_has_left(tmp_path: Path) -> None:
    """An erasure that is begun again finds its source out of the map, and so may one that a person asks for."""
    file = tmp_path / "map.yaml"
    patterns = MAP.replace("{items: , notes: {target: other.notes}}", '{items: , "n*": , "off*": {enabled: false}}')
    file.write_text(patterns.replace('  - {url: "postgresql://a/x", sid: de}\n', ""))
    config = load(file, {}).config
    state_of(config).feeds.see(
        {"shop_de": [("notes", True, 1), ("offers", True, 1)], "shop_fr": [("names", True, 1)]}
    )
    found = {target.name for target in erasing.targets_of(config, erasing.tenant_of(config, DE))}
    assert found == {f"kuvasz.{name}" for name in ("items", "notes", "names", "offers")}


def test_nothing_is_done_until_somebody_is_sure(loaded: Loaded) -> None:
    with pytest.raises(ConfigError, match=r"takes shop_de, stock_de out of the map .* from: kuvasz\.bins") as refused:
        erasing.run(loaded, SourceSelection(sid="de"), is_sure=False)
    assert "add --yes" in str(refused.value)
    with pytest.raises(ConfigError, match=r"source erase removes all rows of source 'gone' of shop for good"):
        erasing.run(loaded, SourceSelection(sid="gone", database="shop"), is_sure=False)
    assert not loaded.config.pipeline.state_folder.exists()


def scan(**found: Any) -> dict[str, Any]:
    nothing = {"files": 1, "rows": 5, "rows_found": 0, "snapshots": 1, "tags_and_branches": [],
               "entries_of_removed_files": 0, "unneeded_files": []}  # fmt: skip
    return nothing | found


def receipt(folder: Path, found: dict[str, Any], *, is_clean: bool, staged: int = 0) -> dict[str, Any]:
    journal = Journal(folder, {"sid": "d/e"})
    journal.told |= {
        "begun_at": "2026-01-01T00:00:00+00:00", "outside": {"log": {"strays": 0, "objects": staged}},
        "other_tables": ["shop.old"],
        "dropped": {"sources": ["shop_de"], "steps": []},
    }  # fmt: skip
    journal.table("shop.items").update(
        rows=7, files_removed=3, snapshots_expired=2, dropped_names=["cut_a"], scan=found, is_clean=is_clean
    )
    unsigned: Any = None
    return erasing.finish(journal, {"sid": "d/e"}, "d/e", erasing.Seal(unsigned, None))


def test_a_receipt_says_what_was_done_and_can_be_checked(tmp_path: Path) -> None:
    found = receipt(tmp_path, scan(), is_clean=True)
    assert Path(found["file"]).is_file()
    assert "-d_e-" in found["file"]
    assert found["sha256"] == erasing.digest(found)
    assert found["sha256"] != erasing.digest({**found, "erased": {"sid": "fr"}})
    assert "signature" not in found
    assert found["sha256"] == erasing.digest({**found, "signature": {"base64": "x"}})
    assert erasing.exit_code(found) == 0
    told = erasing.render(found)
    assert "shop.items: 7 rows erased, 3 files removed, 2 snapshots expired\n  cut_a: tag or branch removed" in told
    assert "shop.old: not looked at" in told
    assert "nothing was found" in told
    assert "no such rows" not in told


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_digest_is_what_the_page_computes_of_a_receipt_that_was_printed_or_kept(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "operating.md").read_text("utf-8")
    (command,) = re.findall(r"^jq -cSj .*sha256sum", page, re.MULTILINE)
    told = receipt(tmp_path, scan(unneeded_files=["s3://lake/é/1"]), is_clean=False)
    for text in (json.dumps(told, indent=2), Path(told["file"]).read_text("utf-8")):
        (tmp_path / "receipt.json").write_text(text)
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.split()[0] == told["sha256"]


def test_what_is_left_is_told(tmp_path: Path) -> None:
    left = scan(rows_found=1, snapshots=2, tags_and_branches=["b"], entries_of_removed_files=4, unneeded_files=["x"])
    found = receipt(tmp_path, left, is_clean=False)
    assert erasing.exit_code(found) == 1
    told = erasing.render(found)
    for line in (
        "1 rows are there",
        "2 snapshots",
        "b: tag or branch\n",
        "4 entries",
        "x: a file",
        "SOMETHING IS LEFT",
    ):
        assert line in told
    found["tables"]["shop.items"]["rows"] = 0
    assert "there were no such rows in any table" in erasing.render(found)
    step = {"error": "no", "hint": None, "source": "shop_de", "what": "slot", "name": "s", "outcome": "left"}
    kept = {**receipt(tmp_path, scan(), is_clean=True), "dropped": {"steps": [step]}}
    assert erasing.exit_code(kept) == 1
    assert "shop_de: slot s: left\n  no" in erasing.render(kept)


def test_what_was_staged_meanwhile_may_have_such_rows(tmp_path: Path) -> None:
    found = receipt(tmp_path, scan(), is_clean=True, staged=3)
    assert erasing.exit_code(found) == 1
    assert "cluster.log: 3 objects came meanwhile" in erasing.render(found)
