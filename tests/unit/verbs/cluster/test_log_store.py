"""The log's store as `kuvasz check` looks at it. That this reaches S3 is `integration/test_stores`'s."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.model import ClusterConfig, Config, LakeConfig
from kuvasz.errors import LakeError
from kuvasz.lake.files.object_folder import ObjectFolder
from kuvasz.verbs.cluster import log_store


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.model_construct(
        lake=LakeConfig(warehouse=str(tmp_path)),
        cluster=ClusterConfig(coordinator="postgresql://nowhere/x", log=str(tmp_path / "log")),
    )


def test_what_is_written_is_read_and_removed(config: Config, tmp_path: Path) -> None:
    assert log_store.prove(config) == "to be made"
    assert list(tmp_path.iterdir()) == [], "nothing is made"
    (tmp_path / "log").mkdir()
    assert log_store.prove(config) == "written, listed, read and removed"
    assert list((tmp_path / "log").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "answer", "why"),
    [
        ("put", OSError("no rights"), "no rights"),
        ("get", OSError("no rights"), "no rights"),
        ("get", b"else", "not what is read"),
        ("names", [], "not listed"),
        ("remove", [], "cannot be removed"),
    ],
)
def test_what_cannot_be_done_is_told(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, answer: object, why: str
) -> None:
    def failing(*_: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    (tmp_path / "log").mkdir()
    monkeypatch.setattr(ObjectFolder, name, failing)
    with pytest.raises(LakeError, match=rf"cluster\.log: .*{why}") as told:
        log_store.prove(config)
    assert "list, read, write and delete" in str(told.value.hint)


def test_the_folder_of_indexes_is_looked_at_as_well(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = config.cluster.model_copy(update={"indexes": str(tmp_path / "indexes")})
    config = config.model_copy(update={"cluster": cluster})
    assert log_store.prove_indexes(config) == "to be made"
    (tmp_path / "indexes").mkdir()
    monkeypatch.setattr(ObjectFolder, "names", lambda _: [])
    with pytest.raises(LakeError, match=r"cluster\.indexes: "):
        log_store.prove_indexes(config)
