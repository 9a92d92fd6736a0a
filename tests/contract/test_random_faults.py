"""Tables of every type through whatever may come between their commits: each seed is a story that can be told again.

Answers that are lost, refusals of what is there, other writers, files that are merged meanwhile, indexes that are
read anew, another format, and processes that are killed with a commit on its way that comes late. What is in the lake
in the end is what the same changes make without any of it.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.errors import ForeignChange, LakeError, LateCommit, OutcomeUnknown
from kuvasz.lake.commit import lanes
from kuvasz.lake.maintenance.compaction_policy import Policy
from kuvasz.lake.maintenance.replace_files import Rewrite, facts
from kuvasz.model import Relation, ReplicaIdentity, Segment, TableType, Truncation
from kuvasz.ports import Failure, TableWork, Target
from tests.support.changes import ITEMS, SAME, TARGET, Sender, again, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld
from tests.support.wires import message

SEEDS = 4

SOURCES = ("eu", "us")

KEYLESS = dataclasses.replace(
    ITEMS,
    identity=ReplicaIdentity.FULL,
    columns=tuple(dataclasses.replace(column, is_key=False) for column in ITEMS.columns),
)

TARGETS = {
    "clone": target(),
    "keyless": target(),
    "soft": dataclasses.replace(target(), is_soft=True),
    "sorted": dataclasses.replace(target(), sort_by=("n",)),
    "partitioned": dataclasses.replace(target(), partition_by=("n",)),
    **{kind.value: target(table_type=kind) for kind in (TableType.HISTORY, TableType.APPEND, TableType.CHANGELOG)},
}

POLICY = Policy(target_bytes=1 << 27, min_files=2, max_dead_share=0.3)


class Stream:
    """What one source sends.

    Args:
        name: Of the source.
        relation: Its table.
        start: Where its LSNs begin.
        dice: Says what.
    """

    def __init__(self, name: str, relation: Relation, start: int, dice: random.Random) -> None:
        self._sender = Sender(name, relation, start=start)
        self._dice = dice
        self._keys: set[int] = set()
        self._rows: list[tuple[int, int, str]] = []  # of a table without a key
        self._change = self._keyed if relation.key else self._keyless

    def transaction(self) -> Iterator[Segment | Truncation]:
        lsn, rows = self._sender.commit_lsn(), list[bytes]()
        for _ in range(self._dice.randint(1, 6)):
            if self._dice.random() < 0.05:
                if rows:
                    yield self._sender.segment([(lsn, rows)])
                yield self._sender.truncation(lsn)
                rows = []
                self._keys.clear()
                self._rows.clear()
            else:
                rows.append(self._change())
        if rows:
            yield self._sender.segment([(lsn, rows)])

    def _keyed(self) -> bytes:
        key, dice = self._dice.randrange(8), self._dice
        if key not in self._keys:
            self._keys.add(key)
            return insert(key, dice.randrange(99), f"x{dice.randrange(99)}")
        if dice.random() < 0.8:
            return update(key, dice.randrange(99), dice.choice([SAME, SAME, f"y{dice.randrange(99)}"]))
        self._keys.remove(key)
        return delete(key)

    def _keyless(self) -> bytes:
        dice, what = self._dice, self._dice.random()
        fresh = dice.randrange(4), dice.randrange(3), "b"
        if what < 0.6 or not self._rows:
            self._rows.append(fresh)
            return message("I", _cells(fresh))
        place = dice.randrange(len(self._rows))
        if what < 0.8:
            return message("D", old=_cells(self._rows.pop(place)), old_tag="O")
        before, self._rows[place] = self._rows[place], fresh
        return message("U", _cells(fresh), _cells(before), "O")


def _cells(row: tuple[int, int, str]) -> list[bytes]:
    return [str(value).encode() for value in row]


def streamed(kind: str, dice: random.Random) -> list[TableWork]:
    """Return the work of some commits."""
    relation = KEYLESS if kind == "keyless" else ITEMS
    streams = [Stream(name, relation, 1000 + 500_000 * place, dice) for place, name in enumerate(SOURCES)]
    works = [
        work(*(change for _ in range(dice.randint(1, 3)) for change in dice.choice(streams).transaction()))
        for _ in range(dice.randint(4, 14))
    ]
    return [one for one in works if one.changes]


class Story:
    """One lake, and what happens to it.

    Args:
        folder: Where it is.
        kind: What the table is.
        dice: Says what happens; None: nothing does.
    """

    def __init__(self, folder: Path, kind: str, dice: random.Random | None) -> None:
        folder.mkdir()
        self._folder, self._dice = folder, dice
        self._target: Target = TARGETS[kind]
        self._relation = KEYLESS if kind == "keyless" else ITEMS
        self.world = LocalWorld(folder)
        self._prepare()
        for source in SOURCES:
            self.world.copy(source, relation=self._relation)
        self._rewrite: Rewrite | None = None
        self._processes = 1
        self._is_old = dice is not None and self._is(0.3)
        if self._is_old:
            self._format("2")

    def _is(self, share: float) -> bool:
        return self._dice is not None and self._dice.random() < share

    def _prepare(self) -> None:
        for source in SOURCES:
            self.world.lake.prepare(self._target, feed(source), self._relation)

    def _format(self, version: str) -> None:
        stored = self.world.stored()
        stored.change(properties={**stored.now.properties, "format-version": version})

    def tell(self, works: list[TableWork]) -> list[str]:
        """Return the rows in the end."""
        before: TableWork | None = None
        for number, one in enumerate(works):
            sent = one
            if self._is_old and number == len(works) // 2:
                self._format("3")
            if self._is(0.12):
                self._begin_another(one)
                if before is not None:  # nothing was confirmed
                    sent = work(*before.changes, *one.changes)
            self._disturb()
            self._send(sent)
            self._swap()
            before = one
        rows = self.world.table(TARGET).to_pylist()
        self.world.lake.close()
        return sorted(map(str, rows))

    def _send(self, one: TableWork) -> None:
        self._fault()
        for _ in range(5):
            outcomes = self.world.apply(_copy(one))
            self._heal()
            if not any(isinstance(outcome, Failure) for outcome in outcomes):
                return
            self.world.lake.resume(TARGET, self.world.lake.failure(TARGET, "eu"))
        raise AssertionError(outcomes)

    def _begin_another(self, one: TableWork) -> None:
        """Kill the process, the commit of whose work is on its way still, and begin another one."""
        world, killed = self.world, self.world.lake
        written = killed.write([_copy(one)]) if self._is(0.6) else None
        self._processes += 1
        state = self._folder / f"state {self._processes}"
        shutil.copytree(world.config.pipeline.state_folder, state)
        if self._is(0.2):
            shutil.rmtree(state / "index")
        pipeline = world.config.pipeline.model_copy(update={"state": str(state)})
        world.config = world.config.model_copy(update={"pipeline": pipeline})
        world.begin(world.catalog)
        self._prepare()
        if written is not None:
            if self._is(0.5):
                world.lake.engine.pool.submit(lambda: None).result()  # its index is open by then
            killed.commit(written)
        self._rewrite = None

    def _disturb(self) -> None:
        table = self.world.loaded()
        with table.lock:
            if self._is(0.1):
                table.index.save()
            if self._is(0.1):
                table.index.reset()
            if self._is(0.05):
                table.index.clear()
        if self._rewrite is None and self._is(0.5):
            self._plan()

    def _plan(self) -> None:
        table = self.world.loaded()
        with table.lock:
            try:
                table.follow()
            except LateCommit:
                table.follow()
            groups = POLICY.plan(facts(table, [*table.index.files], POLICY.target_bytes), full=True)
            is_plain = table.definition.has_unique_keys
            keys = self.world.lake.engine.readers.job(table.definition) if is_plain else None
            self._rewrite = Rewrite.plan(table, groups[:1] if table.definition.keeps_order else groups, keys)
        self._rewrite.write(self.world.jobs, 1)  # type: ignore[arg-type]

    def _swap(self) -> None:
        if self._rewrite is None or self._is(0.3):
            return
        self._fault()
        try:
            with self.world.loaded().lock:
                self._rewrite.commit(lambda _: {})
        except (LakeError, ForeignChange):
            pass
        self._heal()
        self._rewrite = None

    def _fault(self) -> None:
        """Have something come between the next commit and its answer, or before it."""
        stored = self.world.stored()

        def refuse() -> None:
            raise ForeignChange("refused")

        def lose() -> None:
            raise OutcomeUnknown("the answer is lost")

        if self._is(0.2):
            stored.after_commit.append(refuse if self._is(0.5) else lose)
        elif self._is(0.3):
            assert self._dice is not None
            stored.before_commit.append(self._dice.choice([refuse, lose, stored.touch]))

    def _heal(self) -> None:
        self.world.stored().before_commit.clear()
        self.world.stored().after_commit.clear()


def _copy(one: TableWork) -> TableWork:
    changes = (again(change) if isinstance(change, Segment) else change for change in one.changes)
    return dataclasses.replace(one, changes=tuple(changes))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "sorted" else kind for kind in TARGETS]
)
def test_whatever_comes_between_the_rows_are_those_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(lanes, "_FIRST_WAIT_S", 0.001)
    for seed in range(SEEDS):
        works = streamed(kind, random.Random(seed))  # noqa: S311 (no secret)
        wanted = Story(tmp_path / f"{seed}", kind, None).tell(works)
        dice = random.Random(seed + 1000)  # noqa: S311 (as above)
        assert Story(tmp_path / f"{seed} disturbed", kind, dice).tell(works) == wanted, seed
