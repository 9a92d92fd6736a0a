"""The state folder: what kuvasz remembers outside the lake, in small files on a local disk."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from kuvasz.state.address_file import AddressFile
from kuvasz.state.copies.ledger_file import LedgerFile
from kuvasz.state.feed_file import FeedFile
from kuvasz.state.folder_lock import FolderLock
from kuvasz.state.note_file import NoteFile
from kuvasz.state.notices.notice_file import NoticeFile
from kuvasz.state.numbers.number_file import NumberFile
from kuvasz.state.ports import StateStore
from kuvasz.state.relation_files import RelationFiles
from kuvasz.state.source_record_file import SourceRecordFile
from kuvasz.state.verdicts.verdict_file import VerdictFile
from kuvasz.state.witness_files import WitnessFiles


class StateFolder(StateStore):
    """The folder; made when there is something to keep.

    Args:
        folder: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes = NoteFile(folder)
        self._witness = WitnessFiles(folder)
        self._feeds = FeedFile(folder)
        self._address = AddressFile(folder)
        self._numbers = NumberFile(folder)
        self._verdicts = VerdictFile(folder)
        self._notices = NoticeFile(folder)

    @property
    @override
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    @property
    @override
    def is_there(self) -> bool:
        """See `StateStore.is_there`."""
        return self._folder.is_dir()

    @property
    @override
    def notes(self) -> NoteFile:
        """`tables.json`."""
        return self._notes

    @property
    @override
    def witness(self) -> WitnessFiles:
        """`positions/`, one file per table."""
        return self._witness

    @property
    @override
    def feeds(self) -> FeedFile:
        """`feeds.json`."""
        return self._feeds

    @property
    @override
    def address(self) -> AddressFile:
        """`server.json`."""
        return self._address

    @property
    @override
    def numbers(self) -> NumberFile:
        """`numbers.json`."""
        return self._numbers

    @property
    @override
    def verdicts(self) -> VerdictFile:
        """`verified.json`."""
        return self._verdicts

    @property
    @override
    def notices(self) -> NoticeFile:
        """`notified.json`."""
        return self._notices

    @override
    def record(self, source: str) -> SourceRecordFile:
        """Return `sources/<source>.json`."""
        return SourceRecordFile(self._folder, source)

    @override
    def files(self, source: str) -> RelationFiles:
        """Return `files/<source>.json`."""
        return RelationFiles(self._folder, source)

    @override
    def ledger(self, target: str, source: str) -> LedgerFile:
        """Return `copies/<digest>.jsonl`."""
        return LedgerFile(self._folder, target, source)

    @override
    def own(self, does: str) -> FolderLock:
        """Return the lock on `owner.lock`."""
        return FolderLock(self._folder, does)


__all__ = ["StateFolder"]
