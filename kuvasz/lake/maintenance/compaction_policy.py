"""Which files of a table are worth being written anew, and together with which others. Pure.

Size-tiered: a file belongs to a tier by the bytes of its live rows, each tier `_FANOUT` times the one below it, and
files of one tier are merged when there are `min_files` of them, with all smaller ones; the smallest ones earlier
where all tiers together have many. So a row is moved about once per tier on its way from a small commit to a whole
file, whatever the size of the table: 50 kB to 128 MB is four tiers. Levels, the other way, keep fewer files but move
a row up to ten times per level. A whole file, half the target or more, is left alone until `max_dead_share` of its
rows are dead; then writing it anew costs `(1 - share) / share` live rows for each dead one. Both sums are bounded by
what changed, never by the table.

Only files of one key are merged: those of one partition, and of one source if that fills files of its own, because a
TRUNCATE drops such files as a whole. Where the order of rows counts, only neighbours in age are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence

#: Of one tier's size to the next one's.
_FANOUT = 8

#: Tiers below the highest: seven times a factor of eight is one of two million.
_TIERS = 7

#: Small files of one key that are left for later, whatever tiers they are in: a scan opens each of them.
_MOST_SMALL = 16

#: Files in one group: each is opened by one task, and its dead rows are held in memory meanwhile.
_MOST_FILES = 2000

#: Whole files' worth of groups that one table gets in a pass, before the next table has its turn: under an even load
#: all files of a table wear out at about the same time, and they must not all be written anew at once.
FILES_PER_PASS = 4

#: Below this part of the target a file's dead rows wait until it is merged for its size.
_SMALL = 1 / 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A live data file as the policy sees it."""

    number: int  #: ascending with age: the youngest has the highest
    key: Hashable  #: only files of one key may be merged
    rows: int  #: dead ones included
    dead: int
    size: int  #: bytes
    age: tuple[int, str] | None = None  #: where the order of rows counts: ascending; None: as the number says

    @property
    def live_bytes(self) -> int:
        """Bytes that the live rows take up, as far as one can tell."""
        return self.size * (self.rows - self.dead) // max(1, self.rows)

    @property
    def dead_share(self) -> float:
        """Part of the rows that is dead."""
        return self.dead / self.rows if self.rows else 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When to write files anew."""

    target_bytes: int
    min_files: int
    max_dead_share: float

    def plan(self, files: Iterable[FileFacts], *, full: bool = False, only_small: bool = False) -> list[FileGroup]:
        """Return the groups to rewrite, those that free the most first; each becomes one file.

        Args:
            files: All live files of a table.
            full: Also merge what the thresholds would leave, and leave no dead row anywhere.
            only_small: Write no file anew for its dead rows alone.
        """
        by_key: dict[Hashable, list[FileFacts]] = defaultdict(list)
        for file in files:
            by_key[file.key].append(file)
        worn = set() if only_small else self._worn(by_key.values(), full=full)
        groups = []
        for mine in by_key.values():
            for due in _unbroken(mine, worn | self._due(mine, full=full)):
                groups += [group for group in self._packed(due) if _is_worth(group, worn)]
        return sorted(groups, key=lambda group: (-group.dead_share, -len(group.files)))

    def _due(self, files: Sequence[FileFacts], *, full: bool) -> set[int]:
        small = [file for file in files if self._is_small(file)]
        return {file.number for file in (small if full else self._due_tiers(small))}

    def _is_small(self, file: FileFacts) -> bool:
        return file.live_bytes < self.target_bytes / 2

    def _due_tiers(self, small: Sequence[FileFacts]) -> list[FileFacts]:
        """Return the files of the highest tier that is full, and of all below it; more where many would be left."""
        tiers = Counter(map(self._tier, small))
        due = max((tier for tier, count in tiers.items() if count >= self.min_files), default=-1)
        while sum(count for tier, count in tiers.items() if tier > due) > max(_MOST_SMALL, self.min_files):
            due += 1
        return [file for file in small if self._tier(file) <= due]

    def _tier(self, file: FileFacts) -> int:
        """Return 0 for the smallest files; the highest tier ends at half the target."""
        limit = self.target_bytes / 2
        tier = _TIERS
        while tier > 0 and file.live_bytes < limit / _FANOUT:
            limit /= _FANOUT
            tier -= 1
        return tier

    def _worn(self, keys: Iterable[Iterable[FileFacts]], *, full: bool) -> set[int]:
        return {file.number for files in keys for file in files if self._is_worn(file, full=full)}

    def _is_worn(self, file: FileFacts, *, full: bool) -> bool:
        if full:
            return file.dead > 0
        return file.dead_share >= self.max_dead_share and file.size >= self.target_bytes * _SMALL

    def _packed(self, files: Iterable[FileFacts]) -> list[FileGroup]:
        """Put neighbours in age together, as many as make one file of the target's size."""
        groups: list[list[FileFacts]] = []
        filled = 0
        for file in files:
            if groups and filled + file.live_bytes <= self.target_bytes and len(groups[-1]) < _MOST_FILES:
                groups[-1].append(file)
                filled += file.live_bytes
            else:
                groups.append([file])
                filled = file.live_bytes
        return [FileGroup(files=tuple(group)) for group in groups]


def _is_worth(group: FileGroup, worn: Container[int]) -> bool:
    return len(group.files) > 1 or group.files[0].number in worn


def _unbroken(files: Iterable[FileFacts], due: Container[int]) -> Iterator[list[FileFacts]]:
    """Yield the files that are due, oldest first; where order counts, as runs without another file between them."""
    run: list[FileFacts] = []
    for file in sorted(files, key=lambda file: (file.age or (file.number, ""), file.number)):
        if file.number in due:
            run.append(file)
        elif file.age is not None and run:
            yield run
            run = []
    if run:
        yield run


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files whose live rows become one file, oldest first."""

    files: tuple[FileFacts, ...]

    @property
    def live_bytes(self) -> int:
        """What will be written."""
        return sum(file.live_bytes for file in self.files)

    @property
    def dead_share(self) -> float:
        """Part of the rows that is dead."""
        rows = sum(file.rows for file in self.files)
        return sum(file.dead for file in self.files) / rows if rows else 0.0


def one_pass(batches: Iterable[Sequence[FileGroup]], target_bytes: int) -> list[Sequence[FileGroup]]:
    """Return the first batches, as many as one pass takes: at least one."""
    taken: list[Sequence[FileGroup]] = []
    left = FILES_PER_PASS * target_bytes
    for batch in batches:
        left -= sum(group.live_bytes for group in batch)
        if taken and left < 0:
            break
        taken.append(batch)
    return taken


def batches(groups: Iterable[FileGroup], most_bytes: int) -> list[list[FileGroup]]:
    """Deal groups into batches that are committed together, each of at most so many bytes or one group.

    Many small groups share a commit; a large one has its own, so that no commit keeps the stream waiting for long.
    """
    made: list[list[FileGroup]] = []
    filled = 0
    for group in groups:
        if made and filled + group.live_bytes <= most_bytes:
            made[-1].append(group)
            filled += group.live_bytes
        else:
            made.append([group])
            filled = group.live_bytes
    return made
