"""One table's parked changes of one source in a file of records, each with a checksum.

    header | record | record | …        header: magic, id, when it began, bytes known to be on the disk
                                        record: bytes, CRC-32, kind, payload

A record behind the last group says that all of it is in the lake; the next group is written over it.

What one delivery held for the table is a *group*: its relations where they are new, its segments and truncations, and
a mark that ends it. A group holds whole transactions, or a part of one that outgrew the memory; such parts count once
the transaction has ended, and are cut off when it begins again (after a reconnect). A transaction that is here
already is left out, so the same stretch of the stream may be appended twice.

`append` returns when the disk has it. What a crash leaves of a group that was being appended is cut off at `load`:
nobody relied on it. Anything else that is missing or damaged is an error: the header says how much had been written
before the last group was begun.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from kuvasz import failpoints
from kuvasz.errors import StateError, unreadable
from kuvasz.model import Truncation
from kuvasz.parking import relations
from kuvasz.parking.change_records import ChangeRecords
from kuvasz.parking.ports import LogDamaged, TableLog, TransactionGroup
from kuvasz.parking.relation_numbers import RelationNumbers
from kuvasz.route.parts import Change, commit_lsns, separate
from kuvasz.seal.sealing_key import Buffer, SealDamaged
from kuvasz.seal.sealing_secrets import SealingSecrets, SealUnknown

_MAGIC = b"kvszpark1"
_HEADER = struct.Struct("<9s32sdQ")
_DURABLE = struct.Struct("<Q")
_DURABLE_AT = _HEADER.size - _DURABLE.size
_RECORD = struct.Struct("<QIc")
_END = struct.Struct("<Q?")  #: through, whether the last transaction goes on

#: More than there is room for anywhere.
NO_LIMIT = 1 << 62

_IS_RELATION, _IS_SEGMENT, _IS_TRUNCATION, _IS_END, _IS_FINISH = b"R", b"S", b"T", b"E", b"F"


class ParkingLog(TableLog):
    """The file. One thread appends, another one may read.

    Args:
        path: Where it is; made by `create`, found by `load`.
        source: The source's name, for the segments.
        secrets: What row messages are sealed with, and opened; by default they are not.
    """

    def __init__(self, path: Path, source: str, secrets: SealingSecrets | None = None) -> None:
        self.id = ""
        self.since = 0.0
        self.first_lsn = 0
        self.last_lsn = 0
        self.end = 0  #: offset behind the last whole transaction
        self._path = path
        self._records = ChangeRecords(source, secrets or SealingSecrets())
        self._descriptor = -1
        self._size = 0
        self.is_finished = False
        self._open_lsn = 0  #: of the transaction that has not ended; 0: there is none
        self._relations = RelationNumbers()

    @property
    @override
    def place(self) -> str:
        return str(self._path)

    @property
    @override
    def size(self) -> int:
        """The file's bytes."""
        return self._size

    @property
    @override
    def is_there(self) -> bool:
        """Whether the file still has its name: without it, the next process will not find it."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # nobody knows now, and what is taken for gone is removed
            return self._descriptor >= 0

    def create(self, log_id: str) -> None:
        """Make an empty log in place of whatever is there.

        Raises:
            StateError: It cannot be written.
        """
        assert len(log_id) == 32
        self.id, self.since = log_id, time.time()
        try:
            _make_folder(self._path.parent)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            self._size = self.end = _HEADER.size
            os.pwrite(self._descriptor, _HEADER.pack(_MAGIC, log_id.encode(), self.since, self._size), 0)
            os.fsync(self._descriptor)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise self._failed(error) from error

    def load(self) -> None:
        """Read what is there and cut off what a crash left unfinished.

        Raises:
            LogDamaged: It is not there, or not whole.
            StateError: It cannot be read now.
        """
        try:
            self._descriptor = os.open(self._path, os.O_RDWR)
            size = os.fstat(self._descriptor).st_size
            magic, log_id, self.since, durable = _HEADER.unpack(os.pread(self._descriptor, _HEADER.size, 0))
            if magic != _MAGIC:
                raise LogDamaged(f"{self._path} is no parking log")
            self.id = log_id.decode("ascii", "replace")
            self._size = self.end = _HEADER.size
            for group in self._groups(_HEADER.size, size, is_learning=True):
                self._count(group.changes, group.end, is_open=group.is_open)
            if self._size < durable:
                raise LogDamaged(f"{self._path} is damaged at byte {self._size} of {durable}")
            self.is_finished = self._size == self.end and self._record(self.end, size) == (_IS_FINISH, b"")
        except (FileNotFoundError, NotADirectoryError):
            raise LogDamaged(f"{self._path} is gone") from None
        except struct.error as error:
            raise LogDamaged(f"{self._path} cannot be read: {error}") from error
        except OSError as error:
            raise unreadable(self._path, error) from error
        if size > self.end and not self.is_finished:
            self._cut_to(self.end)

    @override
    def append(self, changes: Sequence[Change], through: int, *, is_open: bool, most_bytes: int = NO_LIMIT) -> bool:
        """See `TableLog.append`. The disk has it when this returns."""
        whole, begun = separate(changes, self.last_lsn, is_open=is_open)
        has_ended = 0 < self._open_lsn < through
        buffers: list[Buffer] = []
        if whole or has_ended:
            self._render(whole, through, buffers, is_open=False)
        whole_bytes, relation_count = sum(map(len, buffers)), len(self._relations)
        if begun:
            self._render(begun, through, buffers, is_open=True)
        if not buffers:
            return True
        size = self._size
        if size + sum(map(len, buffers)) > most_bytes:
            self._cut_to(self.end)
            return False
        try:
            self._write(buffers)
        except OSError as error:
            self._cut_to(size)
            raise self._failed(error) from error
        if whole_bytes:
            self._count(whole, size + whole_bytes, is_open=False)
            self._relations.keep(relation_count)
        if begun:
            self._count(begun, size + sum(map(len, buffers)), is_open=True)
        return True

    @override
    def abandon_open(self) -> None:
        """See `TableLog.abandon_open`."""
        self._open_lsn = 0
        if self._size > self.end:
            self._cut_to(self.end)

    @override
    def read(self, offset: int, most_bytes: int) -> list[TransactionGroup]:
        """See `TableLog.read`."""
        if self._descriptor < 0:
            return []
        found: list[TransactionGroup] = []
        size = 0
        begin, end = max(offset, _HEADER.size), self.end
        try:
            for group in self._groups(begin, end):
                found.append(group)
                size += group.bytes
                if size >= most_bytes:
                    return found
        except OSError as error:
            raise unreadable(self._path, error) from error
        except SealDamaged as error:
            raise LogDamaged(
                f"{self._path} is damaged behind byte {found[-1].end if found else begin}: {error}"
            ) from error
        except SealUnknown as error:
            raise StateError(
                f"{self._path} was sealed with another secret than the map has",
                hint="set `pipeline.earlier_seal_secret` to the `seal_secret` of then, and start again",
            ) from error
        if (found[-1].end if found else begin) != end:
            raise LogDamaged(f"{self._path} is damaged at byte {found[-1].end if found else begin} of {end}")
        return found

    @override
    def finish(self) -> None:
        """See `TableLog.finish`. The disk has it when this returns."""
        try:
            os.pwrite(self._descriptor, finish_mark(), self._size)
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._failed(error) from error
        self.is_finished = True

    @override
    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # Writing

    def _render(self, changes: Sequence[Change], through: int, into: list[Buffer], *, is_open: bool) -> None:
        for change in changes:
            number = self._relations.find(change.relation)
            if number is None:
                number = self._relations.add(change.relation)
                _add(into, _IS_RELATION, relations.render(change.relation))
            if isinstance(change, Truncation):
                _add(into, _IS_TRUNCATION, self._records.truncation(number, change))
            else:
                _add(into, _IS_SEGMENT, *self._records.segment(number, change, self.id))
        _add(into, _IS_END, _END.pack(through, is_open))

    def _write(self, buffers: Sequence[Buffer]) -> None:
        failpoints.hit("before_park", OSError)
        self.is_finished = False
        # What is before this group is on the disk; later nothing may be missing of it.
        os.pwrite(self._descriptor, _DURABLE.pack(self._size), _DURABLE_AT)
        data = memoryview(b"".join(buffers))
        while data:
            written = os.pwrite(self._descriptor, data, self._size)
            self._size += written
            data = data[written:]
        failpoints.hit("park_written", OSError)
        os.fdatasync(self._descriptor)
        failpoints.hit("after_park", OSError)

    def _count(self, changes: Sequence[Change], end: int, *, is_open: bool) -> None:
        lsns = commit_lsns(changes)
        self._size = end
        self.first_lsn = self.first_lsn or (lsns[0] if lsns else 0)
        if is_open:
            self._open_lsn = max(lsns)
        else:
            self.last_lsn = max(self.last_lsn, self._open_lsn, *lsns)
            self._open_lsn = 0
            self._relations.keep(len(self._relations))
            self.end = end  # last: who reads goes by it

    def _cut_to(self, size: int) -> None:
        self._relations.cut()
        self._size = self.end = min(size, self.end)
        self._open_lsn = 0
        try:
            # The mark first: it must never lie behind the file's end.
            os.pwrite(self._descriptor, _DURABLE.pack(self._size), _DURABLE_AT)
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StateError:
        return StateError(
            f"{self._path} cannot be written: {(error.strerror or str(error)).lower()}",
            hint="make room; until then the source keeps the table's changes",
        )

    # Reading

    def _groups(self, begin: int, limit: int, *, is_learning: bool = False) -> Iterator[TransactionGroup]:
        offset, start = begin, begin
        changes: list[Change] = []
        while (record := self._record(offset, limit)) is not None:
            kind, payload = record
            offset += _RECORD.size + len(payload)
            if kind == _IS_RELATION and is_learning:
                self._relations.add(relations.parse(payload))
            elif kind == _IS_TRUNCATION:
                changes.append(self._records.read_truncation(payload, self._relations))
            elif kind == _IS_SEGMENT:
                is_wanted = not is_learning
                changes.append(self._records.read_segment(payload, self._relations, self.id, with_rows=is_wanted))
            elif kind == _IS_END:
                through, is_open = _END.unpack(payload)
                yield TransactionGroup(
                    changes=tuple(changes), through=through, is_open=is_open, end=offset, bytes=offset - start
                )
                changes, start = [], offset

    def _record(self, offset: int, limit: int) -> tuple[bytes, bytes] | None:
        """Return kind and payload of a record, None if there is no whole one."""
        if offset + _RECORD.size > limit:
            return None
        size, checksum, kind = _RECORD.unpack(os.pread(self._descriptor, _RECORD.size, offset))
        if offset + _RECORD.size + size > limit:
            return None
        payload = os.pread(self._descriptor, size, offset + _RECORD.size)
        while len(payload) < size and (
            more := os.pread(self._descriptor, size, offset + _RECORD.size + len(payload))
        ):
            payload += more  # one call reads 2 GB at most
        payload = payload[:size]
        return (kind, payload) if zlib.crc32(payload, zlib.crc32(kind)) == checksum else None


def finish_mark() -> bytes:
    """Return the record that says that everything before it is in the lake."""
    mark: list[Buffer] = []
    _add(mark, _IS_FINISH)
    return b"".join(mark)


def is_begun(path: Path) -> bool:
    """Whether anything can be in a log: it is there, and longer than what is written as it is made.

    Raises:
        StateError: Nobody knows now.
    """
    try:
        return path.stat().st_size > _HEADER.size
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unreadable(path, error) from error


def remove(path: Path) -> None:
    """Remove a log, if there is one.

    Raises:
        StateError: It cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StateError(f"{path} cannot be removed: {(error.strerror or str(error)).lower()}") from error


def _add(into: list[Buffer], kind: bytes, *parts: Buffer) -> None:
    checksum = zlib.crc32(kind)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    into.append(_RECORD.pack(sum(map(len, parts)), checksum, kind))
    into.extend(parts)


def _make_folder(folder: Path) -> None:
    """Make a folder so that it survives the loss of power."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = ["NO_LIMIT", "ParkingLog", "finish_mark", "is_begun", "remove"]
