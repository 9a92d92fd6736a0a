"""What the parts of an `IcebergTable` share: the Java object of the table, and how it is asked and changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kuvasz.errors import ForeignChange, place_of
from kuvasz.lake.jvm.jvm_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from kuvasz.lake.jvm.credentials.live_credentials import LiveCredentials
    from kuvasz.lake.jvm.iceberg_classes import IcebergClasses
    from kuvasz.lake.jvm.vended_table import VendedTable

#: How often a change of schema or layout gives way to other commits.
_ATTEMPTS = 5


class TableHandle:
    """One table in Spark's JVM.

    Args:
        classes: The classes of Iceberg.
        java: Iceberg's table.
        name: `namespace.table`.
        vended: Renews what the table's files are reached with; None where nobody changes it.
    """

    def __init__(
        self, classes: IcebergClasses, java: Any, name: str,  # noqa: ANN401 (a Java object)
        vended: VendedTable | LiveCredentials | None = None,
    ) -> None:  # fmt: skip
        self.classes = classes
        self.java = java
        self.name = name
        self._vended = vended
        self._known: dict[str, Any] = {}  # answers since the table was last looked at or changed
        self.answers: dict[str, Any] | None = None  #: these, while nobody changes the table; None: it may be changed
        self.is_local = str(java.location()).startswith("file:")  #: whether its files are on this machine

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Have what is asked be asked once, for as long as this process does not look or commit again.

        The caller keeps everybody else from that, by the table's lock: each source of a fleet asks, and calls
        into the JVM are most of what that costs. So what one has asked the next one knows, too.
        """
        before, self.answers = self.answers, self._known
        try:
            yield
        finally:
            self.answers = before if before is None else self._known

    def forget(self) -> None:
        """Have everything be asked anew: the table was changed, or looked at, or nobody knows."""
        self._known = {}
        if self.answers is not None:
            self.answers = self._known

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Do what leaves the table as it was not, or may have, with the exceptions of `asking`."""
        try:
            with self.asking():
                yield
        finally:
            self.forget()

    def asking(self) -> AbstractContextManager[None]:
        """Have Java's exceptions become ours, also of reads of memory: after a failed commit they ask the catalog."""
        return self._asking() if self._vended is not None else translated(place_of(table=self.name))

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        assert self._vended is not None
        with translated(place_of(table=self.name)), self._vended.doubting():
            yield

    def renew(self) -> None:
        """Be ready to write: `java` may have other credentials, and what the catalog has now."""
        if self._vended is not None:
            self.java = self._vended.current(self.java)

    def head(self) -> Any:  # noqa: ANN401
        """Return Iceberg's newest snapshot of the branch that is written; None if the table is empty."""
        return self.classes.calls.head(self.java)

    def to_commit(self) -> tuple[Any, bool]:
        """Return the table ready for one commit, and whether its manifests are to be read in the calling thread."""
        self.renew()
        files = None if self.is_local else self.classes.commit_files
        return (self.java, self.is_local) if files is None else files.for_commit(self.name, self.java)

    def arrive(self, java: Any) -> None:  # noqa: ANN401
        """Wait until the store has all that was written with what `to_commit` returned."""
        if not self.is_local and self.classes.commit_files is not None:
            self.classes.commit_files.arrive(java)

    def to_read(self) -> Any:  # noqa: ANN401
        """Return the table as it was at the last look, ready for its files to be read."""
        return self.java if self._vended is None else self._vended.reading(self.java)

    def refresh(self) -> None:
        """Look at the catalog again."""
        with self.changing():
            self.renew()
            self.java.refresh()

    def after_others(self, change: Callable[[], None]) -> None:
        """Change schema or layout, once more if a commit of rows or an expiry of snapshots came in between.

        Iceberg repeats most commits that meet another one, and these not.

        Raises:
            ForeignChange: Someone else changes the schema or the layout at the same time.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            seen = self._definition_ids()
            try:
                with self.changing():
                    change()
            except ForeignChange:
                self.refresh()
                if attempt == _ATTEMPTS or self._definition_ids() != seen:
                    raise
            else:
                return

    def _definition_ids(self) -> tuple[int, int, int]:
        """Return the ids of schema, partition spec and sort order."""
        with self.asking():
            return self.java.schema().schemaId(), self.java.spec().specId(), self.java.sortOrder().orderId()


__all__ = ["TableHandle"]
