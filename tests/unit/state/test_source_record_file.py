from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from kuvasz.errors import StateError
from kuvasz.events import Event
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


def test_a_folder_that_cannot_be_written_stops_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FOLDER).write_text("")
    file = SourceRecordFile(tmp_path, "shop_eu", "boot")
    file.update(KNOWN)
    for number in range(1, 10):  # each second, for as long as its source has changes
        file.confirming(KNOWN.confirmed_lsn + number)
    assert file.standing.confirmed_lsn == KNOWN.confirmed_lsn + 9
    assert [record.getMessage() for record in caplog.records] == [Event.STANDING_FAILED.message]


def test_what_could_not_be_written_is_there_with_what_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that write nothing in place need room for that, too."""
    file = SourceRecordFile(tmp_path, "shop_eu", "boot")
    file.update(KNOWN)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", Mock(side_effect=OSError(errno.ENOSPC, "no space left on device")))
        file.confirming(KNOWN.confirmed_lsn + 1)
        assert SourceRecordFile(tmp_path, "shop_eu", "boot").standing == SourceRecord()
    file.confirming(KNOWN.confirmed_lsn + 2)
    assert SourceRecordFile(tmp_path, "shop_eu", "boot").standing.confirmed_lsn == KNOWN.confirmed_lsn + 2


def test_a_file_that_cannot_be_read_now_is_not_one_that_is_missing(tmp_path: Path) -> None:
    """What was confirmed without a commit is known by it alone."""
    SourceRecordFile(tmp_path, "shop_eu", "boot").update(KNOWN)
    path = tmp_path / FOLDER / "shop_eu.json"
    path.rename(tmp_path / "aside")
    path.mkdir()
    file = SourceRecordFile(tmp_path, "shop_eu", "boot")
    with pytest.raises(StateError, match="cannot be read: is a directory"):
        assert file.standing
    path.rmdir()
    (tmp_path / "aside").rename(path)
    assert file.standing == KNOWN
