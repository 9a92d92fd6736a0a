from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.state.ports import SourceRecord
from kuvasz.state.source_record_file import FOLDER, SourceRecordFile

KNOWN = SourceRecord(system_id="71", timeline=3, confirmed_lsn=0x1_0000_0000, looked_lsn=0x1_0000_0007)


@pytest.mark.parametrize("boot_id", ["another", ""])
def test_after_the_machine_went_down_the_confirmed_lsn_is_unknown_but_for_a_clean_end(
    tmp_path: Path, boot_id: str
) -> None:
    file = SourceRecordFile(tmp_path, "shop_eu", boot_id and "boot")
    file.update(KNOWN)
    lost = SourceRecordFile(tmp_path, "shop_eu", boot_id).standing
    assert lost == dataclasses.replace(KNOWN, confirmed_lsn=0)
    file.close()
    file.close()
    kept = SourceRecordFile(tmp_path, "shop_eu", boot_id)
    assert kept.standing == KNOWN
    kept.update(KNOWN)  # from now on it may be behind again
    assert SourceRecordFile(tmp_path, "shop_eu", "third").standing.confirmed_lsn == 0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"is_closed": true}'])
def test_a_damaged_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "shop_eu.json").write_text(text)
    assert SourceRecordFile(tmp_path, "shop_eu", "boot").standing == SourceRecord()


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("")
    file = SourceRecordFile(tmp_path, "shop_eu", "boot")
    file.update(KNOWN)
    file.confirming(KNOWN.confirmed_lsn + 1)
    assert file.standing.confirmed_lsn == KNOWN.confirmed_lsn + 1
