"""The branch of a table that is written: its own, or another one, which its readers see when someone publishes it.

Rows are of a branch; schema, layout and properties, the positions among them, are of the whole table. Which branch is
written says a property of the table, so that every process that loads it goes by the same.

Main may be moved to the branch's newest snapshot as long as that descends from main's. Snapshots in between expire
sooner than somebody publishes; so before they do, `note_fork` notes from where on main the branch went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kuvasz.errors import ForeignChange, LakeError, OutcomeUnknown, place_of
from kuvasz.lake.format.table_identity import BRANCH_PROPERTY, MAIN
from kuvasz.ports import Published

if TYPE_CHECKING:
    from kuvasz.lake.jvm.table_handle import TableHandle

#: Table property with the id of the snapshot of main from which the branch is known to descend.
_FORKED: Final = "kuvasz.forked"

#: How often main is looked at again because another commit came in between.
_ATTEMPTS: Final = 10


class Branch:
    """The branch of one table that is written."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    @property
    def name(self) -> str:
        """Its name, `main` for the table's own."""
        with self._handle.asking():
            return self._handle.classes.calls.property_of(self._handle.java, BRANCH_PROPERTY) or MAIN

    # What is written

    def settle(self, name: str) -> None:
        """Have a branch be written from now on; it goes on from what was written so far.

        Raises:
            LakeError: It has something that what was written does not have, or is a tag; or main is to be written,
                and does not show all of what was.
            ForeignChange: Others commit all the time.
        """
        with self._handle.asking():
            is_settled = self.name == name and (name == MAIN or name in self._handle.java.refs())
        if not is_settled:
            self._handle.after_others(lambda: self._settle(name))

    def _settle(self, name: str) -> None:
        base, change = self._begin()
        before, head = self.name, self._handle.head()
        if head is not None and (at := self._carried(int(head.snapshotId()), before, name)) is not None:
            change.setBranchSnapshot(at, name)
        util = self._handle.classes.jvm.java.util
        if before != name and name == MAIN:
            change.removeProperties(util.Set.of(BRANCH_PROPERTY))
        elif before != name:
            change.setProperties(util.Map.of(BRANCH_PROPERTY, name))
        self._end(base, change)

    def _carried(self, head: int, before: str, name: str) -> int | None:
        """Return where a branch has to point, to go on from the newest snapshot that was written; None: it does.

        Raises:
            LakeError: It cannot without losing something.
        """
        there = self._handle.java.refs().get(name)
        if there is not None and not bool(there.isBranch()):
            raise LakeError(
                f"{self._place}: {name} is a tag, and cannot be written",
                hint="choose another `branch`, or remove the tag; it is tried again",
            )
        at = None if there is None else int(there.snapshotId())
        if name == MAIN:
            if at is None or not self._descends(at, head):
                raise LakeError(
                    f"{self._place}: main is to be written, and what was written to {before} is not published",
                    hint="publish it: `kuvasz publish --table …`; or leave `branch` as it was",
                )
            return None
        if at is not None and not self._descends(head, at):
            raise LakeError(
                f"{self._place}: the branch {name} has something that {before} does not have",
                hint=f"choose another `branch`, or drop it: ALTER TABLE … DROP BRANCH {name}; it is tried again",
            )
        return None if at == head else head

    # Not by transactions of Iceberg's, which try for seconds to change names upon a base that is gone.

    def _begin(self) -> tuple[Any, Any]:
        """Look at the catalog again; return what stands there, and what changes it."""
        self._handle.renew()
        base = self._handle.java.operations().refresh()
        return base, self._handle.classes.jvm.org.apache.iceberg.TableMetadata.buildFrom(base)

    def _end(self, base: Any, change: Any) -> None:  # noqa: ANN401
        """Have the catalog take a change, unless something came in between: that is a `ForeignChange`."""
        self._handle.java.operations().commit(base, change.build())

    def _descends(self, snapshot: int, ancestor: int) -> bool:
        """Whether a snapshot is another one or descends from it, as far as can be seen."""
        util = self._handle.classes.jvm.org.apache.iceberg.util.SnapshotUtil
        return snapshot == ancestor or bool(util.isAncestorOf(self._handle.java, snapshot, ancestor))

    @property
    def _place(self) -> str:
        return place_of(table=self._handle.name)

    # What readers see

    def note_fork(self) -> None:
        """Note from where on main the branch went, before snapshots expire that show it."""
        with self._handle.asking():
            if self.name == MAIN:
                return
            java = self._handle.java
            main, head = java.currentSnapshot(), java.snapshot(self.name)
            if main is None or head is None:
                return
            at = str(int(main.snapshotId()))
            is_known = self._handle.classes.calls.property_of(java, _FORKED) == at
            if is_known or not self._descends(int(head.snapshotId()), int(at)):
                return
        with self._handle.changing():
            java.updateProperties().set(_FORKED, at).commit()

    def publish(self, *, is_trial: bool = False) -> Published:
        """Let main show what the branch has now; with `is_trial` only say what that would be.

        Raises:
            LakeError: There is no branch but main, or main has something that the branch does not have.
            ForeignChange: Others commit all the time; nothing was done.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._handle.changing():
                    return self._publish(is_trial=is_trial)
            except (ForeignChange, OutcomeUnknown):  # the next look says what there is
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError

    def _publish(self, *, is_trial: bool) -> Published:
        base, change = self._begin()
        found = self._found()
        if not is_trial and found.before != found.after:
            change.setBranchSnapshot(found.after, MAIN)
            self._end(base, change)
        return found

    def _found(self) -> Published:
        java, name = self._handle.java, self.name
        if name == MAIN:
            raise LakeError(f"{self._place}: main is written, so there is nothing to publish", hint=_NO_BRANCH)
        head, main = java.snapshot(name), java.currentSnapshot()
        before = None if main is None else int(main.snapshotId())
        after = before if head is None else int(head.snapshotId())
        if before is not None and after is not None:
            self._refuse_unless_on(name, after, before)
        return Published(branch=name, before=before, after=after)

    def _refuse_unless_on(self, name: str, head: int, main: int) -> None:
        """Refuse what would have main lose something.

        Raises:
            LakeError: The branch does not descend from main, as far as anybody knows.
        """
        noted = self._handle.classes.calls.property_of(self._handle.java, _FORKED)
        if noted != str(main) and not self._descends(head, main):
            raise LakeError(
                f"{self._place}: main has snapshot {main}, from which the branch {name} does not descend",
                hint="someone else wrote to main, or expired its snapshots: look at it, and then"
                f" CALL system.set_current_snapshot('{self._handle.name}', {head}) has it show the branch",
            )


_NO_BRANCH: Final = "set `branch` of the table, or `lake.branch`, in the map, and start kuvasz with it"

__all__ = ["Branch"]
