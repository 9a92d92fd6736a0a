"""The staged log in an S3 store: what is written, read in ranges, listed and removed there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kuvasz.config.model import ClusterConfig, Config, LakeConfig
from kuvasz.errors import LakeError, SlotLost
from kuvasz.lake.files import store_access
from kuvasz.lake.files.object_folder import ObjectFolder
from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.stretch import Stretch
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.verbs.cluster import log_store
from tests.support.pgoutput import keepalive
from tests.support.stores import S3
from tests.support.waiting import wait_until


def config_of(s3: S3, bucket: str) -> Config:
    lake = LakeConfig(warehouse=f"s3://{S3.bucket}/warehouse", properties=s3.properties)
    cluster = ClusterConfig(coordinator="postgresql://nowhere/x", log=f"s3://{bucket}/_kuvasz/log")
    return Config.model_construct(lake=lake, cluster=cluster)


@pytest.fixture
def folder(s3: S3) -> Iterator[ObjectFolder]:
    config = config_of(s3, S3.bucket)
    made = ObjectFolder(str(config.cluster.log_location), store_access.of_lake(config.lake))
    yield made
    made.remove(made.names())


def stretch(number: int, lsn: int) -> Stretch:
    data = keepalive(lsn)
    return Stretch(number=number, data=data, lengths=np.array([len(data)], np.uint32), lsn=lsn, ended=lsn)


def test_objects_are_written_read_in_ranges_listed_and_removed(folder: ObjectFolder) -> None:
    assert folder.names() == []
    large = bytes(range(256)) * (6 << 12)  # more than a part of an upload
    for name in ("a.log", "b.log"):
        folder.put(name, large)
        folder.put(name, large)
    assert sorted(folder.names()) == ["a.log", "b.log"]
    assert folder.get("a.log", 256 * 1000 + 3, 5) == bytes([3, 4, 5, 6, 7])
    assert sorted(folder.remove(["a.log", "b.log", "gone.log"])) == ["a.log", "b.log", "gone.log"]
    assert folder.names() == []
    with pytest.raises(FileNotFoundError):
        folder.get("a.log", 0, 1)


def test_files_are_written_and_read_piece_by_piece(folder: ObjectFolder, tmp_path: Path) -> None:
    large = bytes(range(256)) * (6 << 13)  # three pieces
    (tmp_path / "file").write_bytes(large)
    with (tmp_path / "file").open("rb") as file:
        folder.upload("a.run", file)
    folder.download("a.run", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large
    with pytest.raises(FileNotFoundError):
        folder.download("gone.run", tmp_path / "back")


def test_a_log_is_staged_and_read_by_the_next_process(folder: ObjectFolder) -> None:
    index = MemoryIndex()

    def opened() -> StagedLog:
        log = StagedLog(index, folder, interval_s=0.01, object_bytes=1 << 20, sources=1)
        log.open()
        return log

    first = opened()
    first.begin_anew("eu", 100)
    source = first.source("eu")
    source.add([stretch(1, 200), stretch(2, 300)])
    wait_until(lambda: source.known.lsn == 300, "it is staged")
    first.close()
    folder.put("memory-0000000001-0000000099-0.log", b"of a process that died")
    second = opened()
    (found,) = second.slices("eu", 0, 0)
    assert folder.names() == [found.object]
    assert len(second.read(found).lengths) == 2
    folder.remove([found.object])
    with pytest.raises(SlotLost, match="is gone"):
        second.read(found)
    second.source("eu").applied = 300
    wait_until(lambda: not index.objects(), "nobody needs it")
    second.close()


def test_a_check_says_whether_the_store_will_do(s3: S3, folder: ObjectFolder) -> None:
    assert log_store.prove(config_of(s3, S3.bucket)) == "written, listed, read and removed"
    assert folder.names() == []
    with pytest.raises(LakeError, match=r"cluster\.log: s3://nowhere/_kuvasz/log: "):
        log_store.prove(config_of(s3, "nowhere"))
