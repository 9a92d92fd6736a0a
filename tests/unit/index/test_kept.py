"""What is kept of an index in a store is brought whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kuvasz import failpoints
from kuvasz.index import kept, manifest
from kuvasz.index.kept import IndexCheckpoints
from kuvasz.index.positions import PositionIndex
from kuvasz.lake.files.object_folder import ObjectFolder
from tests.support.keys import ALL, keys_of, places


class Node:
    """A machine with an index on its disk, and the store of all.

    Args:
        folder: Where both are.
        name: Of the machine.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name / "index"
        self.store = folder / "store"
        self.kept = IndexCheckpoints(ObjectFolder(f"file://{self.store}", {}))
        self.index = PositionIndex.open(self.folder, memory_entries=64)

    def add(self, numbers: range, file: int, order: int) -> None:
        """Note rows of a file, and make a checkpoint."""
        self.index.insert(keys_of(numbers), file, np.arange(len(numbers), dtype=np.uint32))
        self.index.checkpoint({"order": order, "files": {str(file): f"file-{file}"}})

    def keep(self, order: int) -> int:
        with kept.opened(self.folder) as checkpoint:
            assert checkpoint is not None
            return self.kept.keep(checkpoint, order)

    def bring(self) -> bool:
        self.index.close()
        found = self.kept.bring(self.folder, lambda _: True)
        self.index = PositionIndex.open(self.folder, memory_entries=64)
        return found is not None

    def objects(self) -> list[str]:
        return sorted(file.name for file in self.store.iterdir())


@pytest.fixture
def first(tmp_path: Path) -> Node:
    node = Node(tmp_path, "first")
    node.add(range(40), 1, 1)
    return node


@pytest.fixture
def second(tmp_path: Path) -> Node:
    return Node(tmp_path, "second")


def test_another_machine_has_what_was_kept(first: Node, second: Node) -> None:
    assert not second.bring(), "there is nothing yet"
    assert first.keep(1) == 41 * 16, "of 40 rows and an extent"
    assert second.bring()
    assert places(second.index, ALL) == places(first.index, ALL)
    assert second.index.tag == first.index.tag
    assert not (second.folder / "arriving").exists()


def test_only_runs_that_are_new_are_written_and_all_others_go(first: Node, second: Node) -> None:
    first.keep(1)
    before = first.objects()
    first.add(range(40, 45), 2, 2)
    assert first.keep(2) == 6 * 16
    after = first.objects()
    assert len(before) == 2
    assert len(after) == 3
    assert len(set(after) - set(before)) == 2, "a run and a manifest"
    assert second.bring()
    assert places(second.index, ALL) == places(first.index, ALL)
    # The second one has the table now, and goes on from there: what is in the store already is not written again.
    second.add(range(45, 47), 3, 3)
    assert second.keep(3) < 40 * 16


def test_a_run_that_is_here_is_not_read_again(first: Node, second: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    first.keep(1)
    assert second.bring()
    first.add(range(40, 45), 2, 2)
    first.keep(2)
    read: list[str] = []
    download = ObjectFolder.download

    def noted(self: ObjectFolder, name: str, to: Path) -> None:
        read.append(name)
        download(self, name, to)

    monkeypatch.setattr(ObjectFolder, "download", noted)
    assert second.bring()
    assert [name.rpartition(".")[2] for name in read] == ["index", "run"]
    assert places(second.index, ALL) == places(first.index, ALL)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda file: file.write_bytes(b"")])
@pytest.mark.parametrize("kind", ["run", "index"])
def test_what_is_damaged_is_not_brought_and_what_was_there_stays(
    first: Node, second: Node, kind: str, damage: Callable[[Path], object]
) -> None:
    second.add(range(3), 1, 0)
    before = places(second.index, ALL)
    first.keep(1)
    (file,) = first.store.glob(f"*.{kind}")
    damage(file)
    if (kind, damage) == ("index", Path.unlink):
        assert not second.bring(), "without a manifest there is nothing"
    else:
        with pytest.raises(kept.Unusable):
            second.bring()
    second.index = PositionIndex.open(second.folder)
    assert places(second.index, ALL) == before
    assert {file.suffix for file in second.folder.iterdir()} == {".run", ""}, "nothing else is left"


@pytest.mark.parametrize("point", ["index_runs_kept", "index_kept"])
def test_who_dies_in_between_leaves_one_that_is_whole(
    first: Node, second: Node, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    first.keep(1)
    before = places(first.index, ALL)
    first.add(range(40, 45), 2, 2)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "_armed", failpoints._parse(f"{point}:error"))
        with pytest.raises(OSError, match=point):
            first.keep(2)
    assert second.bring()
    assert places(second.index, ALL) == (before if point == "index_runs_kept" else places(first.index, ALL))
    assert first.keep(2) in {0, 6 * 16}
    assert len(first.objects()) == 3, "what was left is gone"


def test_what_is_kept_is_what_it_was_however_the_index_goes_on(first: Node, second: Node) -> None:
    before = places(first.index, ALL)
    with kept.opened(first.folder) as checkpoint:
        assert checkpoint is not None
        first.add(range(64), 2, 2)
        first.index.merge()
        first.index.checkpoint({"order": 3, "files": {}})
        assert not (first.folder / checkpoint.manifest.runs[0].name).exists()
        first.kept.keep(checkpoint, 1)
    assert second.bring()
    assert places(second.index, ALL) == before


def test_one_of_an_earlier_format_is_not_brought_and_goes_with_the_next(
    first: Node, second: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "_FORMAT", 2)
        first.add(range(40, 45), 2, 1)
        first.keep(1)
    with pytest.raises(kept.Unusable, match="the manifest has format 2, not 3"):
        second.bring()
    second.index = PositionIndex.open(second.folder)
    assert places(second.index, ALL) == {}
    second.add(range(3), 1, 2)
    second.keep(2)
    assert len(second.objects()) == 2, "a run and a manifest"
    assert first.bring()
    assert places(first.index, ALL) == places(second.index, ALL)


def test_all_of_it_can_be_removed(first: Node, second: Node) -> None:
    first.keep(1)
    assert first.kept.remove() == 2
    assert first.objects() == []
    assert first.kept.remove() == 0
    assert not second.bring()


def test_a_folder_without_a_checkpoint_has_nothing_to_keep(tmp_path: Path) -> None:
    with kept.opened(tmp_path) as checkpoint:
        assert checkpoint is None
    (tmp_path / manifest.NAME).write_bytes(b"damaged")
    with kept.opened(tmp_path) as checkpoint:
        assert checkpoint is None
