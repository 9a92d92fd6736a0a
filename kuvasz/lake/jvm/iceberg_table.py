"""One Iceberg table as Spark's JVM has it, reached through py4j.

A table is cheap to keep and safe to use from several threads; each is committed to by one thread at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format.schema import SID
from kuvasz.lake.format.table_identity import BRANCH_PROPERTY
from kuvasz.lake.jvm.iceberg_layout import IcebergLayout
from kuvasz.lake.jvm.iceberg_schema import IcebergSchema, put_properties
from kuvasz.lake.jvm.jvm_errors import class_of, gone
from kuvasz.lake.jvm.refs.branch import Branch
from kuvasz.lake.jvm.remains.remains import Remains
from kuvasz.lake.jvm.snapshots import Snapshots
from kuvasz.lake.jvm.table_handle import TableHandle

if TYPE_CHECKING:
    from kuvasz.lake.files.commit import TableCommit
    from kuvasz.lake.jvm.credentials.live_credentials import LiveCredentials
    from kuvasz.lake.jvm.iceberg_classes import IcebergClasses
    from kuvasz.lake.jvm.joint.joint_commit import JointCommit, StagedCommit
    from kuvasz.lake.jvm.jvm_calls import CurrentState
    from kuvasz.lake.jvm.vended_table import VendedTable

#: Of answers of the handle.
_PROPERTIES = "properties"


class IcebergTable:
    """One table in the catalog.

    Args:
        classes: The classes of Iceberg.
        java: Iceberg's table.
        name: `namespace.table`.
        vended: See `TableHandle`.
    """

    def __init__(
        self, classes: IcebergClasses, java: Any, name: str,  # noqa: ANN401 (a Java object)
        vended: VendedTable | LiveCredentials | None = None,
    ) -> None:  # fmt: skip
        self._classes = classes
        self._handle = TableHandle(classes, java, name, vended)
        self.name = name
        self.snapshots = Snapshots(self._handle)
        self.schema = IcebergSchema(self._handle)
        self.layout = IcebergLayout(self._handle, self.schema)
        self.remains = Remains(self._handle)
        self.branch = Branch(self._handle)
        self._properties: tuple[str, Mapping[str, str]] = ("", {})  # where the metadata was that had them

    # What it is

    @property
    def uuid(self) -> str:
        """Identity of the table: another one after drop and create."""
        with self._handle.asking():
            return str(self._handle.java.uuid().toString())

    @property
    def location(self) -> str:
        """Where the table's files live."""
        with self._handle.asking():
            return str(self._handle.java.location())

    @property
    def format_version(self) -> int:
        """Iceberg format version."""
        with self._handle.asking():
            return int(self._handle.java.operations().current().formatVersion())

    def look(self) -> CurrentState:
        """Look at the catalog again, and return what the table is now."""
        with self._handle.changing():
            self._handle.renew()
            return self._classes.calls.look(self._handle.java)

    def unchanged(self) -> contextlib.AbstractContextManager[None]:
        """Ask properties and schema once while nobody else may change the table; see `TableHandle.unchanged`."""
        return self._handle.unchanged()

    def refresh(self) -> None:
        """Look at the catalog again."""
        self._handle.refresh()

    # Properties

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties; the same object as long as they are the same.

        Raises:
            TableGone: The table was dropped; its handle is empty since someone looked.
        """
        answers = self._handle.answers
        if answers is not None and _PROPERTIES in answers:
            known: Mapping[str, str] = answers[_PROPERTIES]
            return known
        with self._handle.asking(), self._there():
            found = self._classes.calls.properties(self._handle.java, self._properties[0])
        if found is not None:
            self._properties = found
        properties = self._properties[1] if found is None else found[1]
        if answers is not None:
            answers[_PROPERTIES] = properties
        return properties

    def property_of(self, name: str) -> str | None:
        """Return one table property, for less than all of them; None: there is none.

        Raises:
            TableGone: As above.
        """
        if self._handle.answers is not None:  # others are asked for, too
            return self.properties.get(name)
        with self._handle.asking(), self._there():
            return self._classes.calls.property_of(self._handle.java, name)

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            if class_of(error).endswith("NullPointerException"):
                raise gone(self.name) from error
            raise

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Set table properties, or remove those that are None, in a commit of their own."""
        with self._handle.changing():
            update = self._handle.java.updateProperties()
            put_properties(update, properties)
            update.commit()

    def remove_properties(self, names: Iterable[str]) -> None:
        """Remove table properties in a commit of their own."""
        self.set_properties(dict.fromkeys(names))

    def touch(self, properties: Mapping[str, str]) -> None:
        """Set properties together with an empty snapshot, so that whoever looks at snapshots alone notices."""
        with self._handle.changing():
            self._handle.renew()
            transaction = self._handle.java.newTransaction()
            update = transaction.updateProperties()
            put_properties(update, properties)
            update.commit()
            append, branch = transaction.newFastAppend(), self._handle.java.properties().get(BRANCH_PROPERTY)
            if branch is not None:
                append.toBranch(branch)
            append.commit()
            transaction.commitTransaction()

    # Files

    def commit(self, commit: TableCommit) -> tuple[int | None, int | None]:
        """Make a commit and return the ids of the now current snapshot and of its parent.

        Raises:
            ForeignChange: Someone else's commit conflicts; nothing was committed.
            OutcomeUnknown: The commit was sent and its answer lost.
            LakeError: Catalog or storage failed; nothing was committed.
        """
        with self._handle.changing():
            java, is_direct = self._handle.to_commit()
            now = self._classes.calls.commit(java, commit, is_local=is_direct)
        return now.snapshot_id, now.parent_id

    def stage(self, commit: TableCommit, joint: JointCommit) -> StagedCommit:
        """Write all of a commit but what shows it, upon what the catalog has now; `joint` shows it with others.

        Raises:
            ForeignChange: Someone else's commit conflicts.
            LakeError: Catalog or storage failed.
        """
        with self._handle.changing():
            java, is_direct = self._handle.to_commit()

            def fill(transaction: Any) -> None:  # noqa: ANN401 (a Java object)
                self._classes.calls.fill(java, transaction, commit, is_local=is_direct)

            return joint.stage(self.name, java, fill, arrive=lambda: self._handle.arrive(java))

    def live_files(self, *, in_order: bool = False) -> Iterator[LiveFile]:
        """Yield the files of the current snapshot, with the bounds of the sid, which say whose rows a file holds.

        The snapshot is that of the branch that is written. On demand those committed first come first; files of one
        commit are ordered by name (see `kuvasz.lake.format.naming`).
        """
        with self._handle.asking():
            files = (
                LiveFile(sequence=sequence, data=data, deletes=tuple(deletes))
                for sequence, data, deletes in self._classes.calls.files(self._handle.to_read(), SID)
            )
            yield from sorted(files, key=lambda file: file.age) if in_order else files

    def list_data(self) -> Iterator[tuple[str, float]]:
        """Yield path and unix seconds of the last change of every file in the table's data folder."""
        return self._list("data")

    def list_metadata(self) -> Iterator[tuple[str, float]]:
        """Yield the same of its metadata folder, whosever the files are."""
        return self._list("metadata")

    def _list(self, kind: str) -> Iterator[tuple[str, float]]:
        folder = f"{self.location}/{kind}/"
        with self._handle.asking():
            if self._handle.is_local and not Path(folder.removeprefix("file://")).is_dir():
                return  # nothing was written yet
            files = self._handle.to_read().io().listPrefix(folder).iterator()
            while files.hasNext():
                info = files.next()
                yield str(info.location()), info.createdAtMillis() / 1000


__all__ = ["IcebergTable"]
