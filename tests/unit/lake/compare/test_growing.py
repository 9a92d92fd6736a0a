"""Tables with several rows of a key against their source: what a comparison lists, sorts and says, run here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kuvasz.fold.difference import Difference, DifferenceKind
from kuvasz.fold.events import Events, Fault
from kuvasz.lake.compare import growing
from kuvasz.lake.compare.comparison import Comparison
from kuvasz.lake.compare.growing import GrowingComparison, sliced
from kuvasz.lake.executors.comparison_tasks import LakeFile, Reading
from kuvasz.lake.executors.spill import Spill
from kuvasz.lake.files.data_file import write_rows
from kuvasz.lake.format.layout import PLAIN
from kuvasz.model import TableType
from kuvasz.modes import dispatch
from kuvasz.modes.shape import Shape
from tests.support.changes import delete, insert, update
from tests.support.shapes import APPEND, CHANGELOG, HISTORY, KEYLESS, apply, apply_transaction, shape
from tests.support.wires import copy_line


@dataclasses.dataclass(frozen=True)
class Inline:
    """Runs jobs where it stands."""

    parallelism: int = 1

    def run(self, job: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any], _: object) -> list[Any]:
        return list(job(tasks))

    def join(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Lines:
    """A source's rows."""

    rows: Sequence[tuple[int, int | None, str | None]]

    def read(self, _: int) -> Iterator[bytes]:
        yield b"".join(
            copy_line([None if value is None else str(value).encode() for value in row]) for row in self.rows
        )


class Bench:
    """A lake's files in a folder."""

    def __init__(self, folder: Path, of: Shape) -> None:
        self._folder = folder
        self._shape = of
        self._files: list[LakeFile] = []

    def add(self, rows: pa.Table) -> None:
        number = len(self._files)
        path = f"file://{self._folder}/{number}.parquet"
        ((file,), _) = write_rows({}, path, rows, (), PLAIN)
        self._files.append(LakeFile(number=number, path=path, rows=file.rows, dead=None, is_mixed=False, rank=number))

    def against(self, *rows: tuple[int, int | None, str | None], **options: Any) -> GrowingComparison:
        reading = Reading(shape=self._shape, properties={}, chunk_bytes=100, **options)
        return GrowingComparison(
            Inline(), reading, [Lines(rows)] if rows else [], self._files, parallelism=1, folder=self._folder
        )


def told(comparison: Comparison, found: Difference) -> dict[tuple[str, ...], DifferenceKind]:
    texts = {}
    for side in ("lake", "source"):
        texts |= comparison.key_values(found.keys, side)
    return {texts[number]: DifferenceKind(kind) for number, kind in enumerate(found.kinds.tolist())}


def test_the_newest_row_of_an_append_table_counts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, APPEND)
    bench.add(apply(insert(1, 1, "a"), insert(2, 1, "a"), insert(3, 1, "")).rows)
    bench.add(apply(update(1, 2, "a"), update(2, 5, "a"), insert(9, 1, "deleted since")).rows)
    comparison = bench.against((1, 2, "a"), (2, 1, "a"), (3, 1, None), (4, 1, "x"))
    found = told(comparison, comparison.difference())
    assert found == {("2",): DifferenceKind.CHANGED, ("3",): DifferenceKind.CHANGED, ("4",): DifferenceKind.MISSING}
    assert comparison.rows == {"source": 4, "lake": 6}
    unordered = bench.against((1, 2, "a"), (2, 1, "a"), (3, 1, None), (4, 1, "x"), is_ordered=False)
    assert told(unordered, unordered.difference()) == {("3",): DifferenceKind.CHANGED, ("4",): DifferenceKind.MISSING}


def test_the_last_event_of_a_changelog_counts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CHANGELOG)
    bench.add(dispatch.apply_copy(CHANGELOG, copy_line([b"7", b"1", b"copied"]), 90).rows)
    bench.add(
        apply_transaction(
            insert(1, 1, "a"), insert(2, 1, "a"), delete(2), insert(3, 1, "a"), update(4, 1, "a", old=3),
            insert(5, 1, "a"), insert(6, 1, "a"),
        ).rows
    )  # fmt: skip
    equal = bench.against((1, 1, "a"), (4, 1, "a"), (5, 1, "a"), (6, 1, "a"), (7, 1, "copied"))
    assert told(equal, equal.difference()) == {}
    comparison = bench.against((1, 1, None), (2, 1, "a"), (3, 1, "a"), (4, 1, "a"), (6, 1, "a"), (8, 1, "a"))
    assert told(comparison, comparison.difference()) == {
        ("1",): DifferenceKind.CHANGED, ("2",): DifferenceKind.MISSING, ("3",): DifferenceKind.MISSING,
        ("5",): DifferenceKind.EXTRA, ("7",): DifferenceKind.EXTRA,
        ("8",): DifferenceKind.MISSING,
    }  # fmt: skip


def test_an_event_that_is_there_twice_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CHANGELOG)
    rows = apply_transaction(insert(1, 1, "a"), insert(2, 1, "a"), update(2, 2, "a")).rows
    bench.add(rows)
    bench.add(rows.slice(1, 1))
    comparison = bench.against((1, 1, "a"), (2, 2, "a"))
    assert told(comparison, comparison.difference()) == {("2",): DifferenceKind.DOUBLED}


def test_what_a_changelog_has_from_before_a_truncation_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CHANGELOG)
    bench.add(apply_transaction(insert(1, 1, "a"), insert(2, 1, "a")).rows)
    truncation = apply_transaction(insert(1, 1, "a")).rows
    columns = {"_op": "T", "id": None, "_lsn": 200, "_ordinal": 0}
    for name, value in columns.items():
        index = truncation.schema.get_field_index(name)
        field = truncation.schema.field(index)
        truncation = truncation.set_column(index, field, pa.array([value], field.type))
    bench.add(truncation)
    comparison = bench.against((1, 1, "a"))
    assert told(comparison, comparison.difference()) == {("1",): DifferenceKind.MISSING}


@pytest.mark.parametrize("kind", [TableType.APPEND, TableType.CHANGELOG])
def test_rows_without_a_key_are_there_as_often(tmp_path: Path, kind: TableType) -> None:
    of = shape(KEYLESS, kind)
    bench = Bench(tmp_path, of)
    line = copy_line([b"1", b"1", b"a"])
    bench.add(dispatch.apply_copy(of, line + line + copy_line([b"2", None, b""]), 90).rows)
    comparison = bench.against((1, 1, "a"), (2, None, None), (2, None, ""), (1, 1, "a"), (1, 1, "a"))
    assert told(comparison, comparison.difference()) == {
        ("1", "1", "a"): DifferenceKind.MISSING, ("2", "NULL", "NULL"): DifferenceKind.MISSING,
    }  # fmt: skip
    assert comparison.count() == (5, 3)


def test_versions_are_compared_and_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "_TASK_ROWS", 2)
    of = HISTORY
    bench = Bench(tmp_path, of)
    lines = [copy_line([str(number).encode(), b"1", b"a"]) for number in range(1, 6)]
    bench.add(dispatch.apply_copy(of, b"".join(lines), 90).rows)
    bench.add(dispatch.apply_copy(of, lines[0], 90).rows)
    comparison = bench.against((1, 1, "a"), (2, 1, "a"), (3, 1, ""), (4, 1, "a"), at_us=0)
    assert told(comparison, comparison.difference()) == {
        ("1",): DifferenceKind.DOUBLED, ("3",): DifferenceKind.CHANGED, ("5",): DifferenceKind.EXTRA,
    }  # fmt: skip
    keys, kinds = comparison.faults()
    assert comparison.fault_values(keys) == {0: ("1",)}
    assert [Fault(kind) for kind in kinds] == [Fault.OVERLAP]


def test_large_files_are_read_in_pieces() -> None:
    file = LakeFile(number=0, path="", rows=(1 << 18) + 5, dead=None, is_mixed=False)
    assert [(piece.begin, piece.end, piece.wanted) for piece in sliced([file])] == [
        (0, 1 << 18, 1 << 18), (1 << 18, (1 << 18) + 5, 5),
    ]  # fmt: skip


def test_rows_of_a_clone_without_a_key_are_told_by_all_of_their_columns(tmp_path: Path) -> None:
    of = shape(KEYLESS, TableType.CLONE)
    bench = Bench(tmp_path, of)
    one, other = copy_line([b"1", b"1", b"a"]), copy_line([b"2", None, b""])
    bench.add(dispatch.apply_copy(of, one + one + other + copy_line([b"3", b"1", b"x"]), 90).rows)
    reading = Reading(shape=of, properties={}, chunk_bytes=100)
    source = Lines([(1, 1, "a"), (2, None, None), (3, 1, "x")])
    comparison = Comparison(Inline(), reading, [source], bench._files, parallelism=1, folder=tmp_path)
    assert told(comparison, comparison.difference()) == {
        ("1", "1", "a"): DifferenceKind.DOUBLED, ("2", "NULL", ""): DifferenceKind.EXTRA,
        ("2", "NULL", "NULL"): DifferenceKind.MISSING,
    }  # fmt: skip


def test_what_is_sorted_at_a_time_does_not_grow_with_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "_GROUP_ROWS", 500)
    monkeypatch.setattr(growing, "_LEAST_GROUPS", 1)
    monkeypatch.setattr(growing, "_TASK_ROWS", 300)
    sizes: list[int] = []
    load, add = Spill.events, Spill.add_events

    def loaded(spill: Spill, side: str, group: int) -> Events:
        found = load(spill, side, group)
        sizes.append(len(found))
        return found

    def added(spill: Spill, side: str, group: int, events: Events) -> None:
        assert len(events) <= 300, "a task's result"
        add(spill, side, group, events)

    monkeypatch.setattr(Spill, "events", loaded)
    monkeypatch.setattr(Spill, "add_events", added)
    of = CHANGELOG
    for count in (1_000, 4_000):
        bench = Bench(tmp_path, of)
        rows = [(number, 1, "x") for number in range(count)]
        bench.add(dispatch.apply_copy(of, next(Lines(rows).read(0)), 90).rows)
        comparison = bench.against(*rows)
        assert len(comparison.difference()) == 0
        assert comparison.rows == {"source": count, "lake": count}
    assert max(sizes) < 2 * 500
