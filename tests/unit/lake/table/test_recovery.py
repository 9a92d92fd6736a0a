"""Files and index are brought up to a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pyroaring import BitMap64

from kuvasz.errors import ForeignChange, LakeError, TableError
from kuvasz.events import Event, heard_by
from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT, PositionIndex
from kuvasz.lake.files.files import Changeset, FileTable
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format import naming
from kuvasz.lake.table import recovery
from kuvasz.lake.table.open_transactions import OpenTransactions
from kuvasz.lake.table.recovery import Recovery
from kuvasz.model import TableType

PLACE = "s3://b/shop/items"


def keys_of(*numbers: int) -> Keys:
    return Keys(hi=np.full(len(numbers), 7, np.uint64), lo=np.array(numbers, np.uint64))


def stream(order: int) -> str:
    """A file of the stream."""
    return naming.fresh(PLACE, "eu", order)


class World:
    """A table with just what a recovery looks at, and an index."""

    def __init__(
        self, kind: TableType = TableType.CLONE, *, has_members: bool = False, is_plain: bool = True
    ) -> None:
        self.keys: dict[str, Keys] = {}
        self.versions: dict[tuple[str, bool], tuple[Keys, list[int]]] = {}
        self.live: list[LiveFile] = []
        self.read: list[str] = []
        self.kept: list[list[int]] = []  #: numbers of rows of the files whose keys were kept at once
        self.folder = Path("nowhere")
        self.index = PositionIndex.in_memory()
        self.files = FileTable({})
        self.iceberg = SimpleNamespace(live_files=lambda *, in_order: iter(self.live))
        self.definition = SimpleNamespace(
            name="shop.items", target=SimpleNamespace(type=kind, has_members=has_members), sid_id=None,
            is_growing=kind in {TableType.APPEND, TableType.CHANGELOG}, is_bag=False, identity=("id",),
            layout=SimpleNamespace(is_plain=is_plain, order=()),
        )  # fmt: skip
        self.open = OpenTransactions(self.definition)

    def add(self, path: str, *numbers: int, sequence: int = 1) -> str:
        data = {"file-path": path, "record-count": len(numbers), "file-size-in-bytes": 1, "spec-id": 0,
                "partition": []}  # fmt: skip
        self.live.append(LiveFile(data=data, deletes=(), sequence=sequence))
        self.keys[path] = keys_of(*numbers)
        return path

    def keys_of_files(self, files: Sequence[tuple[int, str]]) -> Iterable[tuple[int, Keys]]:
        self.read += [path for _, path in files]
        return [(number, self.keys[path]) for number, path in reversed(files)]

    def keep(self, files: Sequence[tuple[int, str]], rows: Sequence[int], kept: KeyFiles) -> bool:
        self.kept.append(list(rows))
        return all(kept.write_unique(dict(files)[number], keys) for number, keys in self.keys_of_files(files))

    def versions_of(self, files: Sequence[tuple[int, str]], *, are_open: bool) -> list:
        found = [(number, self.versions.get((path, are_open))) for number, path in files]
        return [(number, one[0], np.array(one[1], np.uint32)) for number, one in found if one is not None]

    def recover(self) -> None:
        reader = SimpleNamespace(keys=self.keys_of_files, keep=self.keep, versions=self.versions_of)
        Recovery(self.iceberg, self.definition, self.files, self.open, self.index, reader, self.folder).run()

    def places(self, *numbers: int) -> list[tuple[str, int] | None]:
        """Where the index sends keys: path and row; `("", …)` for nowhere, None for unknown ones."""
        path_of = {entry.number: entry.path for entry in self.files}
        found = zip(*(part.tolist() for part in self.index.lookup(keys_of(*numbers))), strict=True)
        return [None if file == ABSENT else (path_of.get(file, ""), row) for file, row in found]


def test_only_new_files_are_read_and_those_that_are_gone_are_forgotten() -> None:
    world = World()
    one, two = world.add(stream(1), 1, 2), world.add(stream(2), 3)
    world.recover()
    assert world.places(1, 2, 3, 4) == [(one, 0), (one, 1), (two, 0), None]
    del world.live[0]
    three = world.add(stream(3), 1)
    world.read.clear()
    world.recover()
    assert world.read == [three]
    assert world.places(1, 2, 3) == [(three, 0), None, (two, 0)]
    assert {entry.path for entry in world.files} == {two, three}


def test_dead_rows_of_a_clone_are_left_out() -> None:
    world = World()
    one = world.add(stream(1), 1, 2, 3)
    world.files.dead = lambda _: BitMap64([1])
    world.recover()
    assert world.places(1, 2, 3) == [(one, 0), None, (one, 2)]


def test_a_key_that_someone_wrote_twice_into_a_file_of_a_clone_is_told_and_stops_nothing() -> None:
    world = World()
    one = world.add(f"{PLACE}/data/strange.parquet", 1, 2, 1, 3)
    told: list[tuple[Event, Mapping[str, object]]] = []
    with heard_by(lambda event, facts: told.append((event, facts))):
        world.recover()
    assert [facts for event, facts in told if event is Event.KEYS_TWICE] == [{"table": "shop.items", "rows": 1}]
    assert world.places(1, 2, 3) == [(one, 2), (one, 1), (one, 3)]


#: The files of a large table.
ONE, TWO = stream(1), stream(2)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A table of two files, which are many rows here."""
    monkeypatch.setattr(recovery, "_MANY_ROWS", 4)
    world = World()
    world.folder = tmp_path / "keys"
    world.add(ONE, 3, 1, 2)
    world.add(TWO, 5, 4)
    return world


def test_many_rows_are_told_at_once(large: World) -> None:
    large.files.dead = lambda number: BitMap64([1] if number == large.files.find(ONE).number else [])
    large.recover()
    assert large.kept == [[3, 2]]
    assert large.places(1, 2, 3, 4, 5) == [None, (ONE, 2), (ONE, 0), (TWO, 1), (TWO, 0)]
    assert not large.folder.exists(), "nothing of it stays"


def test_few_rows_more_are_told_file_by_file(large: World) -> None:
    large.recover()
    three = large.add(stream(3), 6)
    large.recover()
    assert len(large.kept) == 1
    assert large.places(6, 1) == [(three, 0), (ONE, 1)]


@pytest.mark.parametrize("numbers", [(6, 6), (7, 1)], ids=["in one file", "in two files"])
def test_keys_that_someone_wrote_twice_stop_nothing(large: World, numbers: tuple[int, int]) -> None:
    strange = large.add(f"{PLACE}/data/strange.parquet", *numbers)
    large.recover()
    assert large.places(2, 4) == [(ONE, 2), (TWO, 1)]
    assert large.places(numbers[0])[0][0] == strange
    assert not large.folder.exists()


def test_without_room_for_its_keys_it_says_so(large: World) -> None:
    large.folder.write_text("no folder")
    with pytest.raises(LakeError, match=r"keys cannot be kept in .*keys: "):
        large.recover()


def test_an_open_version_that_someone_wrote_twice_into_a_file_stops_nothing() -> None:
    world = World(TableType.HISTORY)
    one = world.add(f"{PLACE}/data/strange.parquet", 1, 1, 2)
    world.versions[one, True] = keys_of(1, 1, 2), [0, 1, 2]
    world.recover()
    assert world.places(1, 2) == [(one, 1), (one, 2)]


def test_files_keep_what_is_known_of_their_dead_rows() -> None:
    world = World()
    one = world.add(stream(1), 1)
    world.recover()
    number = world.files.find(one).number
    world.files.find(one).dead = dead = BitMap64([0])
    world.recover()
    entry = world.files.find(one)
    assert (entry.number, entry.dead) == (number, dead)


def test_a_large_transaction_does_not_survive_what_it_replaces() -> None:
    world = World()
    one = world.add(stream(1), 1)
    world.recover()
    changeset = Changeset()
    changeset.deletes[world.files.find(one).number] = BitMap64([0])
    world.open["eu"] = SimpleNamespace(changeset=changeset)
    world.recover()
    world.live.clear()
    with pytest.raises(ForeignChange, match="a large transaction of source eu") as caught:
        world.recover()
    assert caught.value.hint.endswith("kuvasz retry --table shop.items")


def test_every_file_of_a_collapse_says_whose_it_is() -> None:
    world = World(has_members=True)
    world.add(naming.fresh(PLACE, "eu/7", 1), 1)
    world.recover()
    strange = world.add(stream(2), 2)
    with pytest.raises(TableError, match=f"file {strange} was written by someone else"):
        world.recover()


def test_the_last_row_of_a_key_counts_where_several_have_it() -> None:
    world = World(TableType.APPEND)
    world.add(stream(1), 1, 2, 1)
    two = world.add(stream(2), 2, 3, 2)
    world.recover()
    assert world.places(1, 2, 3) == [(world.live[0].data["file-path"], 2), (two, 2), (two, 1)]
    three = world.add(stream(3), 3)
    world.read.clear()
    world.recover()
    assert world.read == [three]
    assert world.places(3, 2) == [(three, 0), (two, 2)]


def test_files_that_are_not_newer_have_all_read_anew() -> None:
    world = World(TableType.APPEND)
    world.add(stream(1), 1, 1)
    world.recover()
    merged = naming.merged(PLACE, [world.live[0].data["file-path"]], is_ordered=True)
    world.add(merged, 1)
    world.live.reverse()
    world.read.clear()
    world.recover()
    assert len(world.read) == 2
    assert world.places(1) == [(world.live[1].data["file-path"], 1)]


def test_rows_of_any_age_are_sent_nowhere() -> None:
    world = World(TableType.APPEND)
    world.add(stream(1), 1, 2)
    theirs = world.add(f"{PLACE}/data/00000-0-theirs.parquet", 1, 3, 3, sequence=2)
    world.recover()
    assert [place and place[0] for place in world.places(1, 2, 3)] == ["", world.live[0].data["file-path"], ""]
    assert theirs in world.read


@pytest.mark.parametrize(("sequence", "is_sure"), [(1, False), (2, True)])
def test_partitions_lose_the_order_within_a_commit(sequence: int, *, is_sure: bool) -> None:
    world = World(TableType.APPEND, is_plain=False)
    world.add(stream(1), 1)
    two = world.add(stream(2), 1, sequence=sequence)
    world.recover()
    assert world.places(1) == [(two if is_sure else "", 0)]


def test_the_open_version_counts_else_the_one_that_ended_last() -> None:
    world = World(TableType.HISTORY)
    one, two = world.add(stream(1), 1, 2, 3), world.add(stream(2), 2, 3)
    world.versions = {
        (one, True): (keys_of(1), [0]),
        (one, False): (keys_of(2, 3), [1, 2]),
        (two, True): (keys_of(2), [0]),
        (two, False): (keys_of(3), [1]),
    }
    world.recover()
    assert world.places(1, 2, 3) == [(one, 0), (two, 0), (two, 1)]


def test_without_an_identity_nothing_is_read() -> None:
    world = World()
    world.definition.identity = ()
    one = world.add(stream(1), 1)
    world.recover()
    assert (world.read, [entry.path for entry in world.files]) == ([], [one])
