"""Another table that lives in a table's folder is found, and nothing else is taken for one."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import LakeError, TableStuck
from kuvasz.lake.maintenance import folder_mates
from kuvasz.lake.table.table import LakeTable
from tests.support.changes import TARGET
from tests.support.local_lake import LocalWorld

ANOTHER = json.dumps({"format-version": 2, "table-uuid": "another"}).encode()
HOUR_S = 3600.0


class Bench:
    """A table and its folder of metadata."""

    def __init__(self, world: LocalWorld) -> None:
        world.prepare("eu")
        self.world = world
        self.table: LakeTable = world.loaded()
        self.folder = Path(self.table.definition.location.removeprefix("file://"), "metadata")
        self.folder.mkdir()

    def leave(self, name: str, data: bytes, age_s: float = 0.0) -> str:
        (self.folder / name).write_bytes(data)
        at = time.time() - age_s
        os.utime(self.folder / name, (at, at))
        return f"file://{self.folder}/{name}"

    def found(self) -> str | None:
        catalog: Any = self.world.catalog
        return folder_mates.other_metadata(self.table, catalog, time.time() - HOUR_S)


@pytest.fixture
def bench(local_world: LocalWorld) -> Bench:
    return Bench(local_world)


def test_a_table_that_has_its_folder_for_itself_has_no_mates(bench: Bench) -> None:
    assert bench.found() is None
    bench.leave("00001-killed.metadata.json", b'{"table-uuid": "')
    bench.leave("00002-killed.gz.metadata.json", gzip.compress(ANOTHER)[:20])
    bench.leave("00003-own.metadata.json", json.dumps({"table-uuid": bench.table.definition.uuid}).encode())
    bench.leave("snap-1.avro", ANOTHER)
    assert bench.found() is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("00004-theirs.metadata.json", ANOTHER),
        ("00004-theirs.gz.metadata.json", gzip.compress(ANOTHER, mtime=0)),
        ("00004-theirs.metadata.json", b'{"format-version": 1}'),
    ],
)
def test_one_that_is_written_is_found_by_its_metadata(bench: Bench, name: str, data: bytes) -> None:
    assert bench.found() is None
    assert bench.leave(name, data) == bench.found()


def test_one_that_nobody_writes_lives_if_the_catalog_knows_it(bench: Bench) -> None:
    theirs, catalog = bench.leave("00005-theirs.metadata.json", ANOTHER, 2 * HOUR_S), bench.world.catalog
    assert bench.found() is None, "it was dropped, or is of a catalog that is lost"
    catalog.create("kept.elsewhere", (), (), bench.table.definition.layout, {})
    assert bench.found() is None
    catalog.create("kept.items", (), (), bench.table.definition.layout, {}, f"{bench.table.definition.location}/")
    assert bench.found() == theirs
    catalog.drop("kept.items")
    assert bench.found() is None


def test_one_without_metadata_has_no_files(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.leave("00006-theirs.metadata.json", ANOTHER, 2 * HOUR_S)
    bench.world.catalog.create("kept.items", (), (), bench.table.definition.layout, {})

    def fails(name: str) -> None:
        assert name != TARGET
        raise TableStuck("its metadata file is gone")

    monkeypatch.setattr(bench.world.catalog, "load", fails)
    assert bench.found() is None


def test_what_the_table_names_itself_is_not_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.leave("00007-now.metadata.json", ANOTHER)
    monkeypatch.setattr(bench.table.table.remains, "metadata_files", lambda: {"00007-now.metadata.json"})
    assert bench.found() is None


def test_a_store_that_does_not_answer_is_no_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.leave("00008-theirs.metadata.json", ANOTHER)

    def fails(*_: object) -> object:
        raise OSError("the store is away")

    monkeypatch.setattr(folder_mates, "file_io", fails)
    with pytest.raises(LakeError, match="the store is away"):
        bench.found()
