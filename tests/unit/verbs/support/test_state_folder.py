"""The state folder: its notes without what an error quotes, and the list of its files without what is in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.ports import Note
from kuvasz.state.store import state_of
from kuvasz.verbs.support import state_folder
from tests.support.maps import SHOP, loaded


def test_notes_and_files_are_told_and_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loaded(tmp_path, "pipeline: {state: state}\n" + SHOP).config
    with pytest.raises(StateError, match="there is no state folder"):
        state_folder.gather(config)
    assert not (tmp_path / "state").exists()
    store = state_of(config)
    store.notes.put({("kuvasz.orders", "shop_eu"): Note(failed_at=1.0, message="a value", paused_at=2.0)})
    (tmp_path / "state" / "parked").mkdir()
    (tmp_path / "state" / "parked" / "rows.log").write_text("a value")
    found = state_folder.gather(config)
    assert "a value" not in json.dumps(found.files)
    (table,) = found.files["state.json"]["tables"]
    assert (table["target"], table["source"], table["paused_at"], table["failed_at"]) == (
        "kuvasz.orders", "shop_eu", 2.0, 1.0)  # fmt: skip
    assert found.files["state.json"]["sources"]["shop_eu"]["confirmed_lsn"] == "0/0"
    (line,) = [line for line in found.files["state-folder.txt"].splitlines() if line.endswith("parked/rows.log")]
    assert line.split()[2] == "7"
    assert found.notes == ()
    monkeypatch.setattr(state_folder, "_MOST", 1)
    assert state_folder.gather(config).notes == ("of its files the first 1 alone",)
