"""Parking logs in memory, for tests: they outlive whatever uses them, and end with their process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from typing_extensions import override

from kuvasz.model import Truncation
from kuvasz.parking.ports import LogDamaged, LogStore, TableLog, TransactionGroup
from kuvasz.route.parts import Change, commit_lsns, separate


class MemoryLog(TableLog):
    """The log of one table of one source: a list of groups, an offset is a place in it.

    Args:
        logs: The logs that are there, by target and source.
        target: The name of the target.
        source: The name of the source.
    """

    def __init__(self, logs: dict[tuple[str, str], MemoryLog], target: str, source: str) -> None:
        self.id = uuid.uuid4().hex
        self.since = time.time()
        self.first_lsn = 0
        self.last_lsn = 0
        self.is_finished = False
        self._logs = logs
        self._key = target, source
        self._groups: list[TransactionGroup] = []
        self._end = 0  #: how many of the groups are of whole transactions
        self._open_lsn = 0  #: commit LSN of the transaction that has not ended; 0: there is none

    @property
    @override
    def place(self) -> str:
        return _place(*self._key)

    @property
    @override
    def size(self) -> int:
        return sum(group.bytes for group in self._groups)

    @property
    @override
    def is_there(self) -> bool:
        return self._logs.get(self._key) is self

    @override
    def append(self, changes: Sequence[Change], through: int, *, is_open: bool, most_bytes: int) -> bool:
        """See `TableLog.append`."""
        whole, begun = separate(changes, self.last_lsn, is_open=is_open)
        if self.size + sum(map(_size, [*whole, *begun])) > most_bytes:
            self.abandon_open()
            return False
        if whole or 0 < self._open_lsn < through:
            self._add(whole, through, is_open=False)
            self.last_lsn = max([self.last_lsn, self._open_lsn, *commit_lsns(whole)])
            self._open_lsn = 0
            self._end = len(self._groups)  # last: who reads goes by it
        if begun:
            self._add(begun, through, is_open=True)
            self._open_lsn = max(commit_lsns(begun))
        return True

    def _add(self, changes: Sequence[Change], through: int, *, is_open: bool) -> None:
        self.is_finished = False
        self.first_lsn = self.first_lsn or min(commit_lsns(changes), default=0)
        self._groups.append(
            TransactionGroup(
                changes=tuple(changes), through=through, is_open=is_open, end=len(self._groups) + 1,
                bytes=sum(map(_size, changes)),
            )
        )  # fmt: skip

    @override
    def abandon_open(self) -> None:
        """See `TableLog.abandon_open`."""
        self._open_lsn = 0
        del self._groups[self._end :]

    @override
    def read(self, offset: int, most_bytes: int) -> list[TransactionGroup]:
        """See `TableLog.read`."""
        found: list[TransactionGroup] = []
        for group in self._groups[offset : self._end]:
            found.append(group)
            if sum(one.bytes for one in found) >= most_bytes:
                break
        return found

    @override
    def finish(self) -> None:
        """See `TableLog.finish`."""
        self.is_finished = True

    @override
    def close(self) -> None:
        """See `TableLog.close`."""


class MemoryLogs(LogStore):
    """The logs of all tables."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], MemoryLog] = {}

    @override
    def create(self, target: str, source: str) -> MemoryLog:
        """See `LogStore.create`."""
        made = self._logs[target, source] = MemoryLog(self._logs, target, source)
        return made

    @override
    def load(self, target: str, source: str, log_id: str) -> MemoryLog:
        """See `LogStore.load`."""
        found = self._logs.get((target, source))
        if found is None:
            raise LogDamaged(f"{_place(target, source)} is gone")
        if found.id != log_id:
            raise LogDamaged(f"{found.place} is another log than the lake's table knows")
        found.abandon_open()
        return found

    @override
    def unfinished_lsn(self, target: str, source: str) -> int:
        """See `LogStore.unfinished_lsn`."""
        found = self._logs.get((target, source))
        return 0 if found is None or found.is_finished else found.last_lsn

    @override
    def remove(self, target: str, source: str) -> None:
        """See `LogStore.remove`."""
        self._logs.pop((target, source), None)


def _place(target: str, source: str) -> str:
    """Return where a log is, for people."""
    return f"the log of {target} from {source}"


def _size(change: Change) -> int:
    """Return what a change counts for; a TRUNCATE is not for nothing, for they may be many."""
    return 1 if isinstance(change, Truncation) else len(change.data) + change.lengths.nbytes


__all__ = ["MemoryLog", "MemoryLogs"]
