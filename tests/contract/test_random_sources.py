"""Three sources of a table of which each may bring what is wrong at any time: none loses a row or has one twice.

A program drawn at random writes and commits pieces of their transactions, up to three mini-transactions ahead, while
jobs fail. A source that fails is stopped, mended mostly, and begins again at its position. In the end the table is
that into which each log was written at once.
"""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kuvasz.errors import KuvaszError, LakeError
from kuvasz.model import Segment, TableType, Truncation
from kuvasz.ports import Failure
from tests.support.changes import ITEMS, SAME, TARGET, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld

NAMES = ("eu", "us", "ap")
BAD, LOST, NOTHING = insert(77, "x1"), update(99, 1, SAME), delete(1234)

#: Changes of a transaction that come together; None: a TRUNCATE.
Piece: TypeAlias = "list[bytes] | None"


class Source:
    """A log, and how far it was read."""

    def __init__(self, name: str, dice: random.Random, table_type: TableType) -> None:
        self.name, self._dice, self._type = name, dice, table_type
        self._sender = Sender(name)
        self._keys: set[int] = set()
        self.log: list[tuple[int, list[Piece]]] = []
        self.next = (0, 0)  #: transaction and piece
        self.is_active, self.is_abandoned = True, False
        self.behind: object = None  #: what was written last when it failed

    @property
    def is_open(self) -> bool:
        return self.next[1] > 0

    @property
    def is_at_end(self) -> bool:
        return self.next[0] == len(self.log)

    def grow(self) -> None:
        pieces = [self._piece() for _ in range(self._dice.choice([1, 1, 1, 2, 3]))]
        self.log.append((self._sender.commit_lsn(), pieces))

    def _piece(self) -> Piece:
        if self._dice.random() < 0.12 and self._type is not TableType.HISTORY:
            self._keys.clear()
            return None
        return [self._change() for _ in range(self._dice.randint(1, 4))]

    def _change(self) -> bytes:
        drawn, key, n = self._dice.random(), self._dice.randint(1, 6), self._dice.randint(0, 99)
        is_clone = self._type is TableType.CLONE
        if drawn < 0.07:
            return BAD
        if drawn < 0.1 and is_clone:
            return LOST
        if key not in self._keys:
            self._keys.add(key)
            return insert(key, n)
        if drawn < 0.3:
            self._keys.remove(key)
            return delete(key)
        return update(key, n, SAME if drawn < 0.6 and is_clone else "b")

    def mend(self) -> None:
        for _, pieces in self.log:
            for piece in pieces:
                if piece is not None:
                    piece[:] = [change for change in piece if change not in {BAD, LOST}] or [NOTHING]

    def take(self, count: int) -> list[Segment | Truncation]:
        """The next pieces."""
        taken = []
        while count and not self.is_at_end:
            transaction, piece = self.next
            is_last = piece + 1 == len(self.log[transaction][1])
            self.next = (transaction + 1, 0) if is_last else (transaction, piece + 1)
            count -= 1
            taken.append((transaction, piece))
        return [self._sent(*self.log[t], piece, is_open=self.is_open and t == self.next[0]) for t, piece in taken]

    def _sent(self, lsn: int, pieces: list[Piece], number: int, *, is_open: bool = False) -> Segment | Truncation:
        if (piece := pieces[number]) is None:
            return self._sender.truncation(lsn, is_open=is_open)
        return self._sender.segment([(lsn, piece)], is_open=is_open)

    def all(self) -> Iterator[list[Segment | Truncation]]:
        for lsn, pieces in self.log:
            yield [self._sent(lsn, pieces, number) for number in range(len(pieces))]

    def stop(self, behind: object) -> None:
        self.is_abandoned |= self.is_active and self.is_open
        self.is_active, self.behind = False, behind

    def begin(self, position: int) -> None:
        self.next = (sum(lsn < position for lsn, _ in self.log), 0)
        self.is_active = True


class Program:
    """What happens, drawn by dice."""

    def __init__(self, world: LocalWorld, seed: int, table_type: TableType) -> None:
        self.world = world
        self._dice = random.Random(seed)  # noqa: S311 (a program that can be had again)
        self.sources = {name: Source(name, self._dice, table_type) for name in NAMES}
        self._pending: collections.deque[Any] = collections.deque()
        self.failed = 0

    def step(self) -> None:
        for source in self.sources.values():
            if self._dice.random() < 0.6:
                source.grow()
        drawn = self._dice.random()
        stopped = [source for source in self.sources.values() if not source.is_active]
        if drawn < 0.6:
            self._write()
        elif drawn < 0.85:
            self._commit()
        elif stopped:
            self._resume(self._dice.choice(stopped), is_mended=self._dice.random() < 0.8)

    def finish(self) -> None:
        for _ in range(200):
            for source in self.sources.values():
                source.mend()
                if not source.is_active:
                    self._resume(source, is_mended=True)
            if all(source.is_at_end and source.is_active for source in self.sources.values()) and not self._pending:
                return
            self._write()
            while self._pending:
                self._commit()
        raise AssertionError("it does not end")

    def _write(self) -> None:
        active = [source for source in self.sources.values() if source.is_active]
        taken = [source.take(self._dice.randint(0, 4)) for source in active]
        changes = []
        while left := [one for one in taken if one]:
            changes.append(self._dice.choice(left).pop(0))
        wanted = work(
            *changes,
            open_sources=[source.name for source in active if source.is_open],
            abandoned=[source.name for source in self.sources.values() if source.is_abandoned],
        )
        for source in self.sources.values():
            source.is_abandoned = False
        if self._dice.random() < 0.15:
            self.world.jobs.failures.append("an executor died")
        try:
            written = self.world.lake.write([wanted], apart=self._dice.random() < 0.3)
        except LakeError:
            written = self.world.lake.write([wanted])
        self._pending.append(written)
        self.world.jobs.failures.clear()
        while len(self._pending) > 3:
            self._commit()

    def _commit(self) -> None:
        if not self._pending:
            return
        for outcome in self.world.commit(self._pending.popleft()):
            if isinstance(outcome, Failure):
                self.failed += 1
                self._stop(outcome.source)

    def _stop(self, name: str | None) -> None:
        behind = self._pending[-1] if self._pending else None
        for source in self.sources.values():
            if name in {None, source.name}:
                source.stop(behind)

    def _resume(self, source: Source, *, is_mended: bool) -> None:
        while source.behind is not None and any(one is source.behind for one in self._pending):
            self._commit()
        while (failure := self.world.lake.failure(TARGET, source.name)) is not None:
            self._settle(source, failure)
            self.world.lake.resume(TARGET, failure)
        if is_mended:
            source.mend()
        source.begin(self.world.position(source.name))

    def _settle(self, source: Source, failure: KuvaszError) -> None:
        """Have all that is on its way to whoever fails come through."""
        self._stop(None if self.world.lake.failure(TARGET) is failure else source.name)
        while self._pending:
            self._commit()


def prepared(folder: Path, table_type: TableType) -> LocalWorld:
    folder.mkdir()
    world = LocalWorld(folder)
    for name in NAMES:
        world.lake.prepare(target(table_type=table_type), feed(name), ITEMS)
        world.copy(name)
    return world


def rows(world: LocalWorld) -> list[str]:
    found = world.table(TARGET).to_pylist()
    return sorted(str(sorted((k, v) for k, v in row.items() if k != "_xid")) for row in found)


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 3))])
@pytest.mark.parametrize("table_type", list(TableType))
def test_no_source_loses_a_row_or_has_one_twice(tmp_path: Path, table_type: TableType, seed: int) -> None:
    world, at_once = prepared(tmp_path / "a", table_type), prepared(tmp_path / "b", table_type)
    program = Program(world, seed, table_type)
    for _ in range(60):
        program.step()
    program.finish()
    assert program.failed, "else this tells nothing"
    for pieces in itertools.chain.from_iterable(source.all() for source in program.sources.values()):
        at_once.applied(work(*pieces))
    assert rows(world) == rows(at_once)
    assert world.orphans() == []
    world.lake.close()
    at_once.lake.close()
