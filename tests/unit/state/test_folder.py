from __future__ import annotations

from pathlib import Path

from kuvasz.state.folder import StateFolder
from kuvasz.state.ports import Note, ServerAddress, SourceRecord


def test_everything_has_the_place_it_always_had(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.notes.all()
    folder.witness.known("shop.items")
    folder.address.find()
    folder.feeds.known()
    record, owner = folder.record("shop_eu"), folder.own("replicates")
    assert not (tmp_path / "state").exists(), "nothing to keep"
    folder.notes.put({("shop.items", "shop_eu"): Note(paused_at=1.0)})
    folder.numbers.given("db", [("shop",)])
    folder.feeds.keep({"shop_eu": {"shop.items"}})
    folder.witness.note("shop.items", {"shop_eu": 10})
    record.update(SourceRecord(system_id="7"))
    folder.address.leave(ServerAddress(url="http://127.0.0.1:8000", token="t"))
    with owner:
        found = {str(file.relative_to(tmp_path / "state")) for file in tmp_path.rglob("*") if file.is_file()}
    positions = "positions/03513a92ba55efb078b4762ba2aea22e.json"
    assert found == {
        "tables.json", positions, "sources/shop_eu.json", "server.json", "owner.lock", "feeds.json", "numbers.json",
    }  # fmt: skip
    assert record.place == str(tmp_path / "state" / "sources" / "shop_eu.json")
