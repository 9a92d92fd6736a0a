"""A state store in memory, for tests: it outlives whatever uses it, and ends with its process."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from typing_extensions import override

from kuvasz.errors import StateTaken
from kuvasz.model import SourcePosition
from kuvasz.state.numbers.numbers_of_kind import EntryName, NumbersOfKind
from kuvasz.state.ports import (
    FormerPosition,
    KnownFile,
    Note,
    NoteStore,
    Ownership,
    ServerAddress,
    SourceRecord,
    StateStore,
    StoredAddress,
    StoredFeeds,
    StoredFiles,
    StoredNotices,
    StoredNumbers,
    StoredRecord,
    StoredVerdicts,
    TableKey,
    Witness,
)
from kuvasz.state.verdicts.verdict import Verdict


class MemoryNotes(NoteStore):
    """The notes of all tables."""

    def __init__(self) -> None:
        self._notes: dict[TableKey, Note] = {}

    @override
    def all(self) -> dict[TableKey, Note]:
        """See `NoteStore.all`."""
        return dict(self._notes)

    @override
    def put(self, notes: Mapping[TableKey, Note]) -> None:
        """See `NoteStore.put`."""
        self._notes = {key: note for key, note in {**self._notes, **notes}.items() if note != Note()}


class MemoryWitness(Witness):
    """The positions of all tables."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], int] = {}
        self._given_up: dict[tuple[str, str], FormerPosition] = {}

    @override
    def known(self, table: str) -> Mapping[str, int]:
        """See `Witness.known`."""
        return {source: position for (name, source), position in self._positions.items() if name == table}

    @override
    def note(self, table: str, positions: Mapping[str, int]) -> None:
        """See `Witness.note`."""
        self._positions |= {(table, source): position for source, position in positions.items()}
        for source in positions:
            self._given_up.pop((table, source), None)

    @override
    def drop(self, table: str, source: str) -> None:
        """See `Witness.drop`."""
        self._positions.pop((table, source), None)

    @override
    def give_up(self, table: str, source: str, position: SourcePosition) -> None:
        """See `Witness.give_up`."""
        given = FormerPosition(position.history, position.lsn)
        self._given_up[table, source] = max(given, self._given_up.get((table, source), given))

    @override
    def expect(self, table: str, source: str, position: SourcePosition) -> None:
        """See `Witness.expect`."""
        given = self._given_up.get((table, source))
        if given is not None:
            self._given_up[table, source] = given.below(position)

    @override
    def given_up(self, table: str) -> Mapping[str, FormerPosition]:
        """See `Witness.given_up`."""
        return {source: given for (name, source), given in self._given_up.items() if name == table}

    @override
    def let_go(self, table: str) -> None:
        """See `Witness.let_go`: there is one for all."""


class MemoryFeeds(StoredFeeds):
    """Which targets each source fed."""

    def __init__(self) -> None:
        self._feeds: dict[str, frozenset[str]] = {}
        self._sids: dict[str, str | None] = {}
        self._seen: dict[str, Sequence[tuple[str, bool, int]]] = {}

    @override
    def known(self) -> Mapping[str, frozenset[str]]:
        """See `StoredFeeds.known`."""
        return dict(self._feeds)

    @override
    def sids(self) -> Mapping[str, str | None]:
        """See `StoredFeeds.sids`."""
        return dict(self._sids)

    @override
    def keep(self, feeds: Mapping[str, Collection[str]], sids: Mapping[str, str | None] | None = None) -> None:
        """See `StoredFeeds.keep`."""
        self._feeds |= {feeder: frozenset(targets) for feeder, targets in feeds.items()}
        self._sids |= sids or {}

    @override
    def seen(self) -> Mapping[str, Sequence[tuple[str, bool, int]]]:
        """See `StoredFeeds.seen`."""
        return dict(self._seen)

    @override
    def see(self, tables: Mapping[str, Sequence[tuple[str, bool, int]]]) -> None:
        """See `StoredFeeds.see`."""
        self._seen |= {source: tuple(found) for source, found in tables.items()}

    @override
    def turn(self) -> AbstractContextManager[bool]:
        """See `StoredFeeds.turn`."""
        return contextlib.nullcontext(enter_result=True)


class MemoryRecord(StoredRecord):
    """The record of one source.

    Args:
        records: The records of all sources.
        source: Its name.
    """

    def __init__(self, records: dict[str, SourceRecord], source: str) -> None:
        self.standing = records.get(source, SourceRecord())
        self._records = records
        self._source = source

    @property
    @override
    def place(self) -> str:
        return f"the record of {self._source}"

    @override
    def update(self, standing: SourceRecord) -> None:
        """See `StoredRecord.update`."""
        self.standing = self._records[self._source] = standing

    @override
    def close(self) -> None:
        """See `StoredRecord.close`."""


class MemoryFiles(StoredFiles):
    """The files of one source's tables."""

    def __init__(self) -> None:
        self._files: dict[int, KnownFile] = {}

    @override
    def all(self) -> Mapping[int, KnownFile]:
        """See `StoredFiles.all`."""
        return dict(self._files)

    @override
    def put(self, files: Mapping[int, KnownFile]) -> None:
        """See `StoredFiles.put`."""
        self._files |= files


class MemoryAddress(StoredAddress):
    """The address of the running kuvasz."""

    def __init__(self) -> None:
        self._address: ServerAddress | None = None

    @property
    @override
    def place(self) -> str:
        return "the memory of this process"

    @override
    def find(self) -> ServerAddress | None:
        """See `StoredAddress.find`."""
        return self._address

    @override
    def all(self) -> Sequence[ServerAddress]:
        """See `StoredAddress.all`."""
        return [] if self._address is None else [self._address]

    @override
    def leave(self, address: ServerAddress) -> None:
        """See `StoredAddress.leave`."""
        self._address = address

    @override
    def remove(self, address: ServerAddress) -> None:
        """See `StoredAddress.remove`."""
        if self._address == address:
            self._address = None


class MemoryNumbers(StoredNumbers):
    """The numbers of the map's entries."""

    def __init__(self) -> None:
        self._kinds: dict[str, NumbersOfKind] = {}

    @override
    def given(self, kind: str, names: Sequence[EntryName]) -> Mapping[EntryName, int]:
        """See `StoredNumbers.given`."""
        found = self._kinds[kind] = self._kinds.get(kind, NumbersOfKind()).with_all(names)
        return {name: found.names[name] for name in names}

    @override
    def all(self) -> Mapping[str, NumbersOfKind]:
        """See `StoredNumbers.all`."""
        return dict(self._kinds)

    @override
    def bring(self, kinds: Mapping[str, NumbersOfKind]) -> None:
        """See `StoredNumbers.bring`."""
        self._kinds |= kinds

    @override
    def announce(self, kind: str, before: EntryName, after: EntryName) -> None:
        """See `StoredNumbers.announce`."""
        self._kinds[kind] = self._kinds.get(kind, NumbersOfKind()).announced(before, after)

    @override
    def rename(self, kind: str, before: EntryName, after: EntryName) -> None:
        """See `StoredNumbers.rename`."""
        self._kinds[kind] = self._kinds.get(kind, NumbersOfKind()).renamed(before, after)


class MemoryNotices(StoredNotices):
    """How far each webhook has been told."""

    def __init__(self) -> None:
        self._told: dict[str, Mapping[str, Any]] = {}

    @override
    def all(self) -> Mapping[str, Mapping[str, Any]]:
        """See `StoredNotices.all`."""
        return dict(self._told)

    @override
    def put(self, name: str, told: Mapping[str, Any]) -> None:
        """See `StoredNotices.put`."""
        self._told[name] = told


class MemoryVerdicts(StoredVerdicts):
    """The last verdict on each table."""

    def __init__(self) -> None:
        self._verdicts: dict[TableKey, Verdict] = {}

    @override
    def all(self) -> Mapping[TableKey, Verdict]:
        """See `StoredVerdicts.all`."""
        return dict(self._verdicts)

    @override
    def put(self, verdicts: Mapping[TableKey, Verdict | None]) -> None:
        """See `StoredVerdicts.put`."""
        both = {**self._verdicts, **verdicts}
        self._verdicts = {key: one for key, one in both.items() if one is not None}


class MemoryOwnership(Ownership):
    """The right to a store in memory.

    Args:
        owners: Who owns it now, with what he does: one or nobody.
        does: As `StateStore.own`.
    """

    def __init__(self, owners: dict[Ownership, str], does: str) -> None:
        self._owners = owners
        self._does = does

    @override
    def take(self) -> None:
        """See `Ownership.take`."""
        for owner, does in self._owners.items():
            if owner is not self:
                raise StateTaken(f"the state is in use: another one {does}")
        self._owners[self] = self._does

    @override
    def give_back(self) -> None:
        """See `Ownership.give_back`."""
        self._owners.pop(self, None)


class MemoryState(StateStore):
    """The store."""

    def __init__(self) -> None:
        self._notes = MemoryNotes()
        self._witness = MemoryWitness()
        self._feeds = MemoryFeeds()
        self._address = MemoryAddress()
        self._numbers = MemoryNumbers()
        self._verdicts = MemoryVerdicts()
        self._notices = MemoryNotices()
        self._records: dict[str, SourceRecord] = {}
        self._files: dict[str, MemoryFiles] = {}
        self._owners: dict[Ownership, str] = {}

    @property
    @override
    def place(self) -> str:
        """See `StateStore.place`."""
        return "memory"

    @property
    @override
    def is_there(self) -> bool:
        """See `StateStore.is_there`."""
        return True

    @property
    @override
    def notes(self) -> MemoryNotes:
        """See `StateStore.notes`."""
        return self._notes

    @property
    @override
    def witness(self) -> MemoryWitness:
        """See `StateStore.witness`."""
        return self._witness

    @property
    @override
    def feeds(self) -> MemoryFeeds:
        """See `StateStore.feeds`."""
        return self._feeds

    @property
    @override
    def address(self) -> MemoryAddress:
        """See `StateStore.address`."""
        return self._address

    @property
    @override
    def numbers(self) -> MemoryNumbers:
        """See `StateStore.numbers`."""
        return self._numbers

    @property
    @override
    def verdicts(self) -> MemoryVerdicts:
        """See `StateStore.verdicts`."""
        return self._verdicts

    @property
    @override
    def notices(self) -> MemoryNotices:
        """See `StateStore.notices`."""
        return self._notices

    @override
    def record(self, source: str) -> MemoryRecord:
        """See `StateStore.record`."""
        return MemoryRecord(self._records, source)

    @override
    def files(self, source: str) -> MemoryFiles:
        """See `StateStore.files`."""
        return self._files.setdefault(source, MemoryFiles())

    @override
    def own(self, does: str) -> MemoryOwnership:
        """See `StateStore.own`."""
        return MemoryOwnership(self._owners, does)


__all__ = [
    "MemoryAddress", "MemoryFeeds", "MemoryFiles", "MemoryNotes", "MemoryNumbers", "MemoryOwnership", "MemoryRecord",
    "MemoryState", "MemoryWitness",
]  # fmt: skip
