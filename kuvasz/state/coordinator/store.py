"""The state store of a cluster: what is remembered lies in the coordinator, and the next process finds it there."""

from __future__ import annotations

import functools
import os
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from typing_extensions import override

from kuvasz.config.model import GROUPS, ClusterRole
from kuvasz.state.coordinator.address_document import AddressDocument
from kuvasz.state.coordinator.adoption import adopt
from kuvasz.state.coordinator.database import CoordinatorDatabase
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.coordinator.feed_documents import FeedDocuments
from kuvasz.state.coordinator.file_document import FileDocument
from kuvasz.state.coordinator.heartbeat import Heartbeat
from kuvasz.state.coordinator.lease import ClusterLease
from kuvasz.state.coordinator.member import ClusterOwnership, CoordinatedMember
from kuvasz.state.coordinator.nodes.node_list import NodeList
from kuvasz.state.coordinator.note_documents import NoteDocuments
from kuvasz.state.coordinator.number_documents import NumberDocuments
from kuvasz.state.coordinator.pieces import SharedPieces
from kuvasz.state.coordinator.record_document import RecordDocument, RecordWriter
from kuvasz.state.coordinator.witness_documents import WitnessDocuments
from kuvasz.state.copies.ledger_file import LedgerFile
from kuvasz.state.folder_lock import FolderLock
from kuvasz.state.lakes.coordinated import CoordinatedTableOwners
from kuvasz.state.lakes.index_secret import SharedIndexSecret
from kuvasz.state.notices.notice_documents import NoticeDocuments
from kuvasz.state.ports import StateStore
from kuvasz.state.shares.coordinated import CoordinatedGroups
from kuvasz.state.staged.coordinated import CoordinatedIndex
from kuvasz.state.staged.coordinated_group import CoordinatedGroupIndex
from kuvasz.state.staged.log_groups import LogGroups
from kuvasz.state.verdicts.verdict_documents import VerdictDocuments

#: In the state folder: the name of who had it last. While its lock is held no other process goes by it.
FILE: Final = "node"

#: Of a lease: seconds that an answer of the coordinator may take.
_ANSWER: Final = 0.25


class CoordinatorStore(StateStore):
    """The store.

    Large because it is all that a store of the state is, and what a cluster has besides.

    Args:
        url: The coordinator's url as it is now.
        name: The cluster's name.
        folder: This process's own state folder: its lock, and what can be made again.
        lease_s: For how long the lease is taken.
        group: The group of the cluster's log, with leases and documents of its own; None: the first one.
    """

    def __init__(
        self, url: Callable[[], str], name: str, folder: Path, lease_s: float, group: str | None = None
    ) -> None:
        self._name = name
        self._group = group
        self._cluster = cluster = name if group is None else f"{name}{GROUPS}{group}"
        self._folder = folder
        self._database = CoordinatorDatabase(url, _ANSWER * lease_s, lease_s)
        self._lease = ClusterLease(self._database, cluster, functools.partial(_node, folder), lease_s)
        self._nodes = NodeList(self._database, self._lease, socket.gethostname(), os.getpid())
        self._notes = NoteDocuments(self._documents("notes"))
        self._witness = WitnessDocuments(self._documents("positions"), lambda: self._lease.number)
        self._feeds = FeedDocuments(
            self._documents("feeds"), self._documents("sids"), self._documents("tables")
        )  # fmt: skip
        self._address = AddressDocument(
            self._documents("address"), self._lease, functools.partial(_known_node, folder)
        )  # fmt: skip
        self._numbers = NumberDocuments(self._documents("numbers"))
        self._records = RecordWriter()

    def _documents(self, kind: str) -> Documents:
        return Documents(self._database, self._cluster, self._lease, kind)

    @property
    @override
    def place(self) -> str:
        """The coordinator."""
        return f"{self._database.place}, cluster {self._cluster}"

    @property
    @override
    def is_there(self) -> bool:
        """See `StateStore.is_there`."""
        with self._database.session("look for a cluster") as session:
            query = "SELECT FROM kuvasz.lease WHERE cluster = %s"
            return session.execute(query, (self._cluster,)).fetchone() is not None

    @property
    @override
    def notes(self) -> NoteDocuments:
        """See `StateStore.notes`."""
        return self._notes

    @property
    @override
    def witness(self) -> WitnessDocuments:
        """See `StateStore.witness`."""
        return self._witness

    @property
    @override
    def feeds(self) -> FeedDocuments:
        """See `StateStore.feeds`."""
        return self._feeds

    @property
    @override
    def address(self) -> AddressDocument:
        """See `StateStore.address`."""
        return self._address

    @property
    @override
    def numbers(self) -> NumberDocuments:
        """See `StateStore.numbers`."""
        return self._numbers

    @property
    @override
    def verdicts(self) -> VerdictDocuments:
        """See `StateStore.verdicts`."""
        return VerdictDocuments(self._documents("verdicts"))

    @property
    @override
    def notices(self) -> NoticeDocuments:
        """See `StateStore.notices`."""
        return NoticeDocuments(self._documents("notices"))

    @override
    def record(self, source: str) -> RecordDocument:
        """See `StateStore.record`."""
        return RecordDocument(self._documents("records"), source, self._records)

    @override
    def files(self, source: str) -> FileDocument:
        """See `StateStore.files`."""
        return FileDocument(self._documents("files"), source)

    @property
    def pieces(self) -> SharedPieces:
        """The files that the processes share."""
        return SharedPieces(self._database, self._cluster, self._lease)

    @property
    def log_index(self) -> CoordinatedIndex:
        """The index of the staged log, as the group has it."""
        if self._group is None:
            return CoordinatedIndex(self._database, self._cluster, self._lease)
        readers = ClusterLease(self._database, self._name, lambda: self._lease.node, self._lease.lease_s)
        return CoordinatedGroupIndex(self._database, self._name, self._group, self._lease, readers)

    @property
    def log_groups(self) -> LogGroups:
        """The groups of the cluster's log."""
        return LogGroups(self._database, self._name)

    @property
    def table_owners(self) -> CoordinatedTableOwners:
        """Which tables of lakes are which group's of the cluster's log."""
        return CoordinatedTableOwners(self._database, self._name, self._lease)

    @property
    def index_secret(self) -> SharedIndexSecret:
        """By what keys are hashed."""
        return SharedIndexSecret(self._documents("secrets"))

    @property
    def groups(self) -> CoordinatedGroups:
        """Who applies which groups of the map."""
        return CoordinatedGroups(self._database, self._lease)

    @override
    def ledger(self, target: str, source: str) -> LedgerFile:
        """See `StateStore.ledger`: a file of this machine."""
        return LedgerFile(self._folder, target, source)

    @override
    def own(self, does: str) -> ClusterOwnership:
        """See `StateStore.own`."""
        return ClusterOwnership(self.member(does, lambda _: None), does, self._cluster)

    def member(
        self, does: str, on_lost: Callable[[str], None], role: ClusterRole = ClusterRole.ALL
    ) -> CoordinatedMember:
        """Return this process's place in the cluster, which it is yet to take.

        Args:
            does: What it does with its state folder, for whoever finds that taken.
            on_lost: Told why the lease is lost, before anybody else can have it; from a thread of its own.
            role: What it does in the cluster.
        """
        self._lease.role = role
        heartbeat = Heartbeat(self._database, self._lease, self._nodes, on_lost)
        lock = FolderLock(self._folder, does)
        return CoordinatedMember(self._database, self._lease, self._nodes, lock, heartbeat, self._adopt)

    def _adopt(self) -> None:
        """Bring what this process remembers of before, unless one of the cluster did so; after a kill again."""
        if self._lease.role is ClusterRole.READ:
            return  # it writes none of that
        adopted = self._documents("adopted")
        if adopted.get("state") is None:
            adopt(self._folder, self)
            adopted.put({"state": {"by": self._lease.node}})


def _known_node(folder: Path) -> str | None:
    """Return the name of who has a state folder; None: nobody had it yet."""
    try:
        return (folder / FILE).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None


def _node(folder: Path) -> str:
    """Return the name of who has a state folder: `host-` and eight digits, another one on another machine."""
    file, host = folder / FILE, socket.gethostname()
    try:
        found = file.read_text(encoding="utf-8").strip()
        if found.startswith(f"{host}-"):
            return found
    except (OSError, ValueError):
        pass
    name = f"{host}-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(name, encoding="utf-8")
    except OSError:
        pass  # the lock on the folder says why
    return name


__all__ = ["FILE", "CoordinatorStore"]
