from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.model import Config
from kuvasz.errors import ConfigError, LakeError
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.ports import LogIndex, StagedPosition, StagedSlice
from kuvasz.verbs.sources import erased_log
from tests.support.maps import loaded

MAP = """\
lake: {{uri: "jdbc:sqlite:{folder}/catalog.db", warehouse: {folder}/wh}}
pipeline: {{state: {folder}/state}}
cluster: {{coordinator: "postgresql://c/x", log: {folder}/log{group}}}
databases:
- {{database: shop, urls: [{{url: "postgresql:///a"}}], tables: {{items: }}}}
"""


def of(tmp_path: Path, index: LogIndex, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return a map whose log has an index."""
    monkeypatch.setattr(erased_log, "log_index", lambda _: index)
    (tmp_path / "log").mkdir()
    return loaded(
        tmp_path, MAP.format(folder=tmp_path, group=", role: apply, group: blue" if index.group else "")
    ).config


def stage(index: MemoryIndex, name: str) -> None:
    index.begin_anew("shop", 5)
    one = StagedSlice(source="shop", first=1, last=1, through=9, is_open=False, object=name, at=0, size=1)
    index.append(name, [one], {"shop": (StagedPosition(lsn=5, ended=0), StagedPosition(lsn=9, ended=9, number=1))})


def test_objects_that_a_killed_process_has_left_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have rows as the source sent them, and the index knows nothing of them."""
    index = MemoryIndex()
    index.open()
    config, log = of(tmp_path, index, monkeypatch), tmp_path / "log"
    for name in ("memory-1-1-a.log", "memory-1-2-b.log.part", "another-1-1-a.log"):
        (log / name).write_bytes(b"rows")
    erased_log.refuse_staged(config)
    assert erased_log.forget(config) == {"strays": 2, "objects": 0}
    assert [found.name for found in log.iterdir()] == ["another-1-1-a.log"]


def test_an_object_that_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = MemoryIndex()
    index.open()
    config = of(tmp_path, index, monkeypatch)
    (tmp_path / "log" / "memory-1-1-a.log").write_bytes(b"rows")
    monkeypatch.setattr(erased_log.ObjectFolder, "remove", lambda *_: [])
    with pytest.raises(LakeError, match=r"cluster.log: \S+memory-1-1-a.log cannot be removed"):
        erased_log.forget(config)


@pytest.mark.parametrize("is_group", [False, True])
def test_what_is_staged_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_group: bool) -> None:
    """A group does not know which objects of the log are strays: whoever reads may write one."""
    index = MemoryIndex()
    index.open()
    stage(index, "memory-1-1-a.log")
    group = index.of_group("blue")
    group.open()
    config = of(tmp_path, group if is_group else index, monkeypatch)
    for name in ("memory-1-1-a.log", "memory-1-2-b.log"):
        (tmp_path / "log" / name).write_bytes(b"rows")
    with pytest.raises(ConfigError, match="has staged changes"):
        erased_log.refuse_staged(config)
    assert erased_log.forget(config) == {"strays": 0 if is_group else 1, "objects": 1}
    assert (tmp_path / "log" / "memory-1-1-a.log").is_file()


def test_without_a_log_nothing_is_asked(tmp_path: Path) -> None:
    text = MAP.replace("log: {folder}/log{group}", "name: x").format(folder=tmp_path)
    config = loaded(tmp_path, text).config
    erased_log.refuse_staged(config)
    assert erased_log.forget(config) == {"strays": 0, "objects": 0}
