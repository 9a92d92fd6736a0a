"""What check finds, in the archive: also where nothing answers."""

from __future__ import annotations

from pathlib import Path

from kuvasz.verbs.support import findings
from tests.support.maps import SHOP, loaded


def test_findings_are_there_for_people_and_for_programs(tmp_path: Path) -> None:
    found = findings.gather(loaded(tmp_path, SHOP.replace("eu1/", "127.0.0.1:1/"))).files
    assert "FAILED" in found["check.txt"]
    assert any(not one["ok"] and one["source"] == "kuvasz_shop_eu" for one in found["check.json"])
