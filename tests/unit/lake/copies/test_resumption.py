"""A copy that goes on from files of another snapshot: against a table of blocks that changes as chance has it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from kuvasz.errors import LakeError, SourceError, TableError
from kuvasz.lake.copies import resumption
from kuvasz.lake.copies.resumption import WrittenFiles, paths_in
from kuvasz.lake.files.data_file import DataFile
from kuvasz.model import LakeType, Segment, SourcePosition, Truncation, ValueType
from kuvasz.modes.shape import COMPUTED, Binding, Shape
from kuvasz.ports import CopyLedger, EarlierParts
from tests.support.changes import ITEMS, SAME, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld

PARTS = 6


class Ledger(CopyLedger):
    """A ledger, as whoever has copies made keeps it."""

    def __init__(self) -> None:
        self.earlier: EarlierParts | None = None
        self.made_for = ""
        self.parts: dict[int, str] = {}
        self.told: list[object] = []
        self.is_closed = False

    def begin(self, made_for: str, why: str = "") -> None:
        self.told.append(why)
        self.made_for, self.parts, self.is_closed = made_for, {}, False

    def go_on(self, keys: int) -> None:
        self.told.append(keys)

    def note(self, number: int, made: str) -> None:
        assert number not in self.parts
        self.parts[number] = made

    def close(self) -> None:
        self.is_closed = True

    def reopen(self) -> None:
        self.is_closed = False

    def again(self, changes: Sequence[Segment | Truncation], look_up: Callable[..., Lines]) -> Ledger:
        """What a later attempt is given."""
        later = Ledger()
        later.made_for, later.parts = self.made_for, dict(self.parts)
        later.earlier = EarlierParts(
            made_for=self.made_for, parts=dict(self.parts), changes=list(changes), look_up=look_up
        )
        return later


class Blocks:
    """A table in blocks: key -> its block, n, and a value that is too large to be sent unless it changes."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)  # noqa: S311
        self.rows: dict[int, tuple[int, int, str]] = {
            key: (key // 10, 0, f"large {key}") for key in range(PARTS * 10)
        }
        self.sender = Sender()
        self.messages: list[bytes] = []

    def part(self, number: int) -> Lines:
        """What a session reads of one block."""
        return Lines(tuple((key, n, big) for key, (block, n, big) in sorted(self.rows.items()) if block == number))

    def look_up(self, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Lines:
        assert tuple(columns) == ("id",)
        found = [(key, self.rows[key]) for (text,) in rows if (key := int(text)) in self.rows]
        return Lines(tuple((key, n, big) for key, (_, n, big) in found))

    def change(self) -> None:
        """One change of a row, which moves it to any block."""
        pick = self.pick
        key, block, n = pick.randrange(PARTS * 10 + 20), pick.randrange(PARTS), pick.randrange(1000)
        if key not in self.rows:
            self.rows[key] = block, n, f"new {n}"
            self.messages.append(insert(key, n, f"new {n}"))
            return
        _, _, big = self.rows[key]
        match pick.choice(["update", "update", "large", "delete", "key"]):
            case "update":
                self.rows[key] = block, n, big
                self.messages.append(update(key, n, SAME))
            case "large":
                self.rows[key] = block, n, f"other {n}"
                self.messages.append(update(key, n, f"other {n}"))
            case "delete":
                del self.rows[key]
                self.messages.append(delete(key))
            case "key" if -key not in self.rows:
                del self.rows[key]
                self.rows[-key] = block, n, big
                self.messages.append(update(-key, n, SAME, old=key))

    def changes(self) -> list[Segment]:
        """All changes so far."""
        return [self.sender.one(*self.messages[begin : begin + 7]) for begin in range(0, len(self.messages), 7)]


def attempt(world: LocalWorld, blocks: Blocks, ledger: Ledger, wanted: Sequence[int] | None) -> None:
    """Copy parts, or all that are missing; cut off behind them."""
    requests = [blocks.part(number) for number in range(PARTS)]
    at = SourcePosition(lsn=9000)

    def on_read() -> None:
        if wanted is not None:
            raise SourceError("the connection was cut off")

    def only(files: resumption.EarlierFiles) -> resumption.EarlierFiles:
        skipped = set(range(PARTS)) - set(wanted or range(PARTS)) - files.made.keys()
        nothing = {number: WrittenFiles(files=(), rejected={}) for number in skipped}
        return dataclasses.replace(files, made={**files.made, **nothing})

    begin = resumption.Resumption.begin
    with mock.patch.object(resumption.Resumption, "begin", lambda self, ledger: only(begin(self, ledger))):
        world.lake.copy(feed(), ITEMS, requests, at, lambda *_: None, on_read=on_read, ledger=ledger)


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    local_world.lake.prepare(target(), feed(), ITEMS)
    return local_world


@pytest.mark.parametrize("seed", range(12))
def test_it_is_as_if_nothing_had_been_cut_off(world: LocalWorld, seed: int) -> None:
    blocks, ledger = Blocks(seed), Ledger()
    missing = list(range(PARTS))
    blocks.pick.shuffle(missing)
    for _ in range(2):
        now, missing = missing[:2], missing[2:]
        with pytest.raises(SourceError):
            attempt(world, blocks, ledger, now)
        for _ in range(blocks.pick.choice([0, 3, 40])):
            blocks.change()
        ledger = ledger.again(blocks.changes(), blocks.look_up)
    attempt(world, blocks, ledger, None)
    assert world.of("eu") == {key: (n, big) for key, (_, n, big) in blocks.rows.items()}
    assert ledger.is_closed


def test_the_stream_goes_on_behind_it(world: LocalWorld) -> None:
    blocks, ledger = Blocks(1), Ledger()
    with pytest.raises(SourceError):
        attempt(world, blocks, ledger, [0, 3])
    assert sorted(ledger.parts) == [0, 3]
    for _ in range(30):
        blocks.change()
    later = ledger.again(blocks.changes(), blocks.look_up)
    attempt(world, blocks, later, None)
    (keys,) = later.told
    assert isinstance(keys, int)
    assert keys > 0
    start = Sender(start=9000)
    world.applied(work(start.one(*[update(key, 5, SAME) for key in blocks.rows])))
    assert world.of("eu") == {key: (5, big) for key, (_, _, big) in blocks.rows.items()}


def cut_once(world: LocalWorld) -> tuple[Blocks, Ledger]:
    blocks, ledger = Blocks(2), Ledger()
    with pytest.raises(SourceError):
        attempt(world, blocks, ledger, [0, 1, 2])
    return blocks, ledger


def damage(path: str) -> None:
    file = Path(path.removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:-1])


def test_what_is_of_no_use_is_not_used(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, ledger = cut_once(world)
    first = paths_in(ledger.parts[0])[0]

    def why(later: Ledger) -> object:
        with pytest.raises(SourceError):
            attempt(world, blocks, later, [5])
        assert sorted(later.parts) == [5]
        return later.told[0]

    other = ledger.again([], blocks.look_up)
    assert other.earlier is not None
    other.earlier = dataclasses.replace(other.earlier, made_for="something else")
    assert why(other) == "its files were made for another table, map or version of kuvasz"
    other = ledger.again([], blocks.look_up)
    assert other.earlier is not None
    other.earlier = dataclasses.replace(other.earlier, parts={0: "{"})
    assert why(other) == "its ledger cannot be read"
    assert why(ledger.again([Sender().truncation()], blocks.look_up)) == "the table was truncated"
    torn = Sender().one(insert(1))
    torn = dataclasses.replace(torn, data=torn.data[:-1], lengths=torn.lengths - 1)
    assert str(why(ledger.again([torn], blocks.look_up))).startswith("what has changed cannot be told: ")
    with monkeypatch.context() as patch:
        patch.setattr(resumption, "MOST_KEYS", 2)
        many = [Sender().one(*[insert(key) for key in range(3)])]
        assert why(ledger.again(many, blocks.look_up)) == "more than 2 of its rows have changed"
    with monkeypatch.context() as patch:
        patch.setattr(world.catalog, "known_files", lambda _: {first.rpartition("/")[2]})
        assert why(ledger.again([], blocks.look_up)) == "its files are in the table"
    damage(first)
    assert why(ledger.again([], blocks.look_up)) == "not all of its files are whole"
    Path(first.removeprefix("file://")).unlink()
    assert why(ledger.again([], blocks.look_up)) == "not all of its files are there"


def test_a_store_that_does_not_answer_is_asked_again(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, ledger = cut_once(world)

    def down(*_: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(resumption, "file_io", down)
    later = ledger.again([], blocks.look_up)
    with pytest.raises(LakeError, match="no answer"):
        attempt(world, blocks, later, None)
    assert later.told == [], "nothing is lost for that"


def test_rows_that_were_read_twice_make_it_begin_again(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the source takes two texts for equal, both find the one row."""
    monkeypatch.setattr(resumption, "_KEYS_OF_ONE", 1)
    blocks, ledger = cut_once(world)
    changed = [Sender().one(update(1, 5, SAME), update(2, 5, SAME))]
    later = ledger.again(changed, lambda *_: Lines(((1, 5, "a"),)))
    with pytest.raises(LakeError, match="rows of one key were read twice"):
        attempt(world, blocks, later, None)
    assert later.is_closed
    assert world.of("eu") == {}


def test_a_commit_that_fails_loses_nothing_that_is_finished(world: LocalWorld) -> None:
    blocks, ledger = cut_once(world)
    later = ledger.again([], blocks.look_up)

    def away() -> None:
        world.catalog.is_down = True

    requests = [blocks.part(number) for number in range(PARTS)]
    at = SourcePosition(lsn=9000)
    with pytest.raises(LakeError):
        world.lake.copy(feed(), ITEMS, requests, at, lambda *_: None, on_read=away, ledger=later)
    world.catalog.is_down = False
    assert not later.is_closed
    assert len(later.parts) == PARTS
    attempt(world, blocks, later.again([], blocks.look_up), None)
    assert world.of("eu") == {key: (n, big) for key, (_, n, big) in blocks.rows.items()}


def test_an_error_of_the_table_leaves_nothing_behind(world: LocalWorld) -> None:
    blocks, ledger = cut_once(world)
    later = ledger.again([], blocks.look_up)

    def fail() -> None:
        raise TableError("a person has to see to it")

    requests = [blocks.part(number) for number in range(PARTS)]
    at = SourcePosition(lsn=9000)
    with pytest.raises(TableError):
        world.lake.copy(feed(), ITEMS, requests, at, lambda *_: None, on_read=fail, ledger=later)
    assert later.is_closed
    assert world.orphans() == []


def test_files_are_known_again_by_what_was_noted() -> None:
    file = DataFile(
        path="s3://b/data/kvsz-1.parquet", rows=3, size=9, json="{}", spec_id=2, partition=("de", 3, None),
        sids=("eu", "us"),
    )  # fmt: skip
    made = WrittenFiles(files=(file, dataclasses.replace(file, sids=None)), rejected={"eu": 2})
    assert WrittenFiles.parse(made.render()) == made
    assert paths_in(made.render()) == [file.path, file.path]
    assert paths_in("[1") == []


def test_a_key_that_is_masked_is_not_asked_for() -> None:
    key = Binding(name="id", column=0, type=ValueType(kind=LakeType.LONG))
    shape = Shape(
        source="shop_eu", table=ITEMS.table, sid="eu", column_count=1, bindings=(key,), key=(0,), seed=b"",
        schema=pa.schema([]),
    )  # fmt: skip
    assert resumption.can_resume(shape)
    for other in (dataclasses.replace(key, mask="hmac"), dataclasses.replace(key, column=COMPUTED)):
        assert not resumption.can_resume(dataclasses.replace(shape, bindings=(other,)))
