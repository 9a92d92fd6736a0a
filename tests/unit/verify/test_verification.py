"""Which differences count, which wait, and what is told of them; servers and lake are others'."""

from __future__ import annotations

import contextlib
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kuvasz.config.model import Origin
from kuvasz.errors import SlotLost, SourceError, TableError
from kuvasz.fold.difference import Difference, DifferenceKind, Listing, difference
from kuvasz.fold.keys import Keys
from kuvasz.model import SourcePosition, TableType
from kuvasz.ports import Target
from kuvasz.verbs import verify as verify_verb
from kuvasz.verify import verification
from kuvasz.verify.report import Report
from kuvasz.verify.verification import Verification, _report, _SnapshotRound
from tests.support.scene import Scene

REPORT = Report(source="shop", table="public.items", target="shop.items")


def listing(**rows: int) -> Listing:
    """Rows k1=value, …."""
    numbers = np.array([int(name[1:]) for name in rows], np.uint64)
    none = np.zeros(len(rows), np.uint32)
    zeros = np.zeros(len(rows), np.uint64)
    prints = Keys(hi=zeros, lo=np.array(list(rows.values()), np.uint64))
    return Listing(keys=Keys(hi=zeros, lo=numbers), prints=prints, files=none, places=none)


FOUND = difference(listing(k1=1, k2=20, k4=4), listing(k1=1, k2=2, k3=3))  # 2 changed, 3 extra, 4 missing


def table(kind: TableType = TableType.CLONE) -> Any:
    definition = SimpleNamespace(is_growing=kind in {TableType.APPEND, TableType.CHANGELOG}, key=("id",))
    return SimpleNamespace(definition=definition, target=Target(name="shop.items", type=kind), name="shop.items")


def done(found: Difference = FOUND, **facts: Any) -> _SnapshotRound:
    given = {"at": 0x100, "found": found, "certain": found, "undecided": np.zeros(len(found), np.bool_),
             "rows": {"source": 3, "lake": 3}, "compared": "all rows"}  # fmt: skip
    return _SnapshotRound(**(given | facts))


def report(*rounds: _SnapshotRound, kind: TableType = TableType.CLONE, can_mend: bool = False) -> Report:
    return _report(REPORT, table(kind), rounds, can_mend=can_mend)


def test_differences_are_counted_by_their_kind() -> None:
    found = report(done())
    assert (found.missing, found.extra, found.changed, found.differences, found.left) == (1, 1, 1, 3, 3)
    assert (found.lsn, found.source_rows, found.lake_rows, found.compared) == ("0/100", 3, 3, "all rows")


def test_keys_that_come_again_in_another_round_count_once() -> None:
    """A key that was undecided at first, and differs, is one difference."""
    first = done(certain=FOUND.keep(np.array([True, True, False])), undecided=np.array([False, False, True]))
    second = done(FOUND.keep(np.array([False, False, True])))
    found = report(first, second)
    assert (found.differences, found.undecided) == (3, 0)
    assert report(first).undecided == 1


def test_what_was_mended_is_left_no_more() -> None:
    found = report(done(mended=FOUND.keys), can_mend=True)
    assert (found.differences, found.mended, found.left, found.why_left) == (3, 3, 0, "")
    assert report(done(mended=FOUND.keys.take(np.array([0]))), can_mend=True).left == 2


@pytest.mark.parametrize(
    ("kind", "told"),
    [(TableType.CLONE, ""), (TableType.HISTORY, "versions that do not fit together"),
     (TableType.APPEND, "rows that a table of type append keeps are not made up")],
)  # fmt: skip
def test_what_keeps_it_from_being_mended_is_told(kind: TableType, told: str) -> None:
    why = report(done(), kind=kind, can_mend=kind is not TableType.APPEND).why_left
    assert why.startswith(told)
    assert bool(why) is bool(told)


@pytest.mark.parametrize(("lacks", "missing", "extra"), [(5, 5, 0), (-2, 0, 2), (0, 0, 0)])
def test_where_rows_can_only_be_counted_that_is_told(lacks: int, missing: int, extra: int) -> None:
    found = report(done(Difference.concat([]), lacks=lacks), kind=TableType.APPEND)
    assert (found.missing, found.extra) == (missing, extra)


def test_faults_of_a_history_are_differences_that_stay() -> None:
    found = report(done(Difference.concat([]), faults=2), kind=TableType.HISTORY, can_mend=True)
    assert (found.faults, found.differences, found.left) == (2, 2, 2)


def test_of_two_open_versions_nobody_knows_the_right_one() -> None:
    doubled = difference(listing(k1=1), Listing.concat([listing(k1=1), listing(k1=1)]))
    assert doubled.kinds.tolist() == [DifferenceKind.DOUBLED]
    assert verification._mendable(done(doubled), table()).tolist() == [True]
    assert verification._mendable(done(doubled), table(TableType.HISTORY)).tolist() == [False]


@pytest.mark.parametrize("kind", [TableType.CLONE, TableType.HISTORY])
def test_rows_that_stay_because_the_map_says_so_are_told_and_left(kind: TableType) -> None:
    """What a source lacks may be of a partition that is gone (`partition_removed: keep`)."""
    kept = done(has_kept=True)
    stream: Any = Stream()
    assert verification._unmoved(kept, stream, table(kind)).keys.lo.tolist() == [2, 4]
    assert verification._mendable(kept, table(kind)).tolist() == [True, False, True]
    found = report(done(has_kept=True, mended=FOUND.keys.take(np.array([0, 2]))), kind=kind, can_mend=True)
    assert (found.extra, found.mended, found.left) == (1, 2, 1)
    assert found.why_left.startswith("the map says `partition_removed: keep`")
    assert "kuvasz resync --table shop.items" in found.why_left


def test_of_equal_rows_without_a_key_more_stay_than_the_source_has_where_some_are_kept() -> None:
    doubled = difference(listing(k1=1), Listing.concat([listing(k1=1), listing(k1=1)]))
    keyless, keyed = table(), table()
    keyless.definition.key = ()
    assert verification._mendable(done(doubled, has_kept=True), keyless).tolist() == [False]
    assert verification._mendable(done(doubled, has_kept=True), keyed).tolist() == [True]


@pytest.mark.parametrize(("origin", "can_mend"), [(Origin.ANY, True), (Origin.NONE, False)])
def test_where_rows_of_others_cannot_be_told_nothing_is_mended(scene: Scene, origin: Origin, can_mend: bool) -> None:
    lake: Any = None
    source = dataclasses.replace(scene.source, origin=origin)
    made = Verification(source, lake, is_fixing=True, on_progress=lambda *_: None)
    assert made._can_mend(table()) == can_mend


@pytest.mark.parametrize(("end", "is_refused"), [(0x200, False), (0x100, False), (0xFF, True)])
def test_a_server_whose_wal_ends_before_the_lake_is_refused(
    monkeypatch: pytest.MonkeyPatch, end: int, is_refused: bool
) -> None:
    """The stream would be waited for that brings what the lake has, and never does."""
    monkeypatch.setattr(verification.conninfo, "connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(verification.introspect, "wal_end", lambda _: end)
    with pytest.raises(SlotLost, match="the lake is at 0/100") if is_refused else contextlib.nullcontext():
        verification._check_past("", 0x100, "source shop")


class Stream:
    """A window whose changes touch some keys."""

    def __init__(self, *touched: int, unknown: tuple[int, ...] = ()) -> None:
        lo = FOUND.keys.lo.tolist()
        self.touched = np.array([key in touched for key in lo])
        self.unknown = np.array([key in unknown for key in lo])
        self.added = 0

    def read(self, _: int) -> list[Any]:
        return []

    def evaluate(self) -> None:
        """All is known."""

    def known(self) -> tuple[Any, Any, Any]:
        numbers = np.flatnonzero(self.touched & ~self.unknown)
        zeros = np.zeros(len(numbers), np.uint64)
        return numbers, np.ones(len(numbers), np.int64), Keys(hi=zeros, lo=FOUND.lake_lo[numbers])


def compared(*, is_ordered: bool = True) -> Any:
    comparison = SimpleNamespace(is_ordered=is_ordered, judged=lambda found: found)
    return SimpleNamespace(comparison=comparison, taken=SimpleNamespace(consistent_point=0x80))


def test_a_key_that_the_source_changed_since_to_what_the_lake_has_is_no_difference() -> None:
    stream: Any = Stream(2)
    found = verification._decide(done(), stream, stream, compared())
    assert found.certain.keys.lo.tolist() == [3, 4]
    assert not found.undecided.any()


def test_a_key_of_which_the_stream_does_not_tell_all_is_undecided() -> None:
    stream: Any = Stream(2, unknown=(2,))
    found = verification._decide(done(), stream, stream, compared())
    assert (found.certain.keys.lo.tolist(), found.undecided.tolist()) == ([3, 4], [True, False, False])


def test_where_the_lakes_rows_have_no_order_a_change_leaves_a_key_undecided() -> None:
    stream: Any = Stream(2)
    found = verification._decide(done(), stream, stream, compared(is_ordered=False))
    assert (found.certain.keys.lo.tolist(), found.undecided.tolist()) == ([3, 4], [True, False, False])


def test_what_a_stopped_kuvasz_has_still_to_apply_is_no_difference() -> None:
    stream: Any = Stream(2, 4)
    found = verification._leave_waiting(done(), stream, stream, compared())
    assert (found.certain.keys.lo.tolist(), found.waiting) == ([3], 2)


def test_what_moved_since_the_snapshot_is_not_mended() -> None:
    stream: Any = Stream(3)
    left = verification._unmoved(done(), stream, table())
    assert left.keys.lo.tolist() == [2, 4]


class Lake:
    """A lake with what a test says of its table."""

    mask_secret = b""

    def __init__(self, found: Any) -> None:
        self.found = found

    def table(self, _: object) -> Any:
        return self.found


@pytest.fixture
def scene(tmp_path: Any) -> Scene:
    return Scene(tmp_path)


def verify(scene: Scene, found: Any, monkeypatch: pytest.MonkeyPatch, why_not: str = "") -> Report:
    monkeypatch.setattr(verification, "look", lambda _: None)
    lake: Any = Lake(found)
    made = Verification(scene.source, lake, is_fixing=False, on_progress=lambda *_: None)
    return made.run(scene.items, why_not)


def copied(parked: str | None = None) -> Any:
    notes = SimpleNamespace(parked=lambda _: parked, gaps=lambda _: (), skipped=lambda _: False)
    return SimpleNamespace(name="shop.items", positions={"shop": SourcePosition(lsn=1)}, notes=notes)


def test_a_table_that_was_never_copied_is_passed_over(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verify(scene, None, monkeypatch).skipped == "the lake has no such table yet"
    assert verify(scene, lacking(published=None), monkeypatch).skipped == "it was not copied yet"


def lacking(published: str | None) -> Any:
    notes = SimpleNamespace(published=lambda _: published, skipped=lambda _: False, parked=lambda _: None)
    return SimpleNamespace(positions={}, notes=notes)


def test_one_whose_rows_are_those_of_before_is_not_passed_over(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream was lost, say, and it waits to be copied or compared: readers see what it had."""
    found = verify(scene, lacking(published=""), monkeypatch)
    assert (found.skipped, found.error) == ("", "source shop, table public.items: it is copied again")
    assert found.error_code == TableError("").exit_code
    told = verify(scene, lacking(published=""), monkeypatch, "it is copying").error
    assert told == "source shop, table public.items: it does not follow its source: it is copying"


def test_one_that_was_never_copied_is_not_equal_and_one_in_error_says_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first copy fails: a job that goes by the exit code must not take the lake for equal to its sources."""
    for found in (None, lacking(published=None)):
        assert verify_verb.exit_code([verify(scene, found, monkeypatch)]) == TableError("").exit_code
        told = verify(scene, found, monkeypatch, "column price: 'x' is no number")
        assert "it does not follow its source: column price" in told.error
    left_out = copied()
    left_out.notes.skipped = lambda _: True
    assert verify_verb.exit_code([verify(scene, left_out, monkeypatch)]) == 0, "the map says `initial: skip`"


def test_one_of_which_nobody_can_tell_how_far_it_is_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verify(scene, copied(), monkeypatch, "it is paused")
    assert found.error == "source shop, table public.items: it does not follow its source: it is paused"
    assert found.error_code == TableError("").exit_code
    assert "changes wait in the state folder" in verify(scene, copied("a1"), monkeypatch).error


def test_a_source_that_does_not_answer_is_asked_once_for_all_tables(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(url: str) -> None:
        asked.append(url)
        raise SourceError("shop: nothing listens there")

    monkeypatch.setattr(verification.conninfo, "connect", refuse)
    monkeypatch.setattr(verification, "look", lambda _: None)
    lake: Any = Lake(copied())
    made = Verification(scene.source, lake, is_fixing=False, on_progress=lambda *_: None)
    errors = [made.run(spec).error for spec in scene.source.tables]
    assert errors == ["shop: nothing listens there"] * 2
    assert len(asked) == 1
