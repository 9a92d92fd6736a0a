"""The branch of a table that is written: its own, or another one, which its readers see when someone publishes it.

Rows are of a branch; schema, layout and properties, the positions among them, are of the whole table. Which branch is
written says a property of the table, so that every process that loads it goes by the same.

Main may be moved to the branch's newest snapshot, or to one that has a tag, as long as that descends from main's.
Snapshots in between expire sooner than somebody publishes; so before they do, `note_lineage` notes from which of
main's and the tags' snapshots the branch descends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kuvasz.errors import ForeignChange, LakeError, OutcomeUnknown, place_of
from kuvasz.lake.format.table_identity import BRANCH_PROPERTY, MAIN
from kuvasz.ports import Published

if TYPE_CHECKING:
    from kuvasz.lake.jvm.table_handle import TableHandle

#: Table property with the ids of the snapshots, main's and those of tags, from which the branch is known to descend.
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

    def note_lineage(self) -> None:
        """Note from which snapshots of main and of tags the branch descends, before those expire that show it."""
        with self._handle.asking():
            if self.name == MAIN:
                return
            java = self._handle.java
            head = java.snapshot(self.name)
            if head is None:
                return
            kept = {
                int(ref.snapshotId()) for name, ref in java.refs().items() if name == MAIN or not bool(ref.isBranch())
            }
            noted = self._noted()
            known = {one for one in kept if one in noted or self._descends(int(head.snapshotId()), one)}
            if known == noted:
                return
        with self._handle.changing():
            java.updateProperties().set(_FORKED, ",".join(map(str, sorted(known)))).commit()

    def _noted(self) -> set[int]:
        text = self._handle.classes.calls.property_of(self._handle.java, _FORKED) or ""
        return {int(one) for one in text.split(",") if one}

    def publish(self, tag: str | None = None, *, is_trial: bool = False) -> Published:
        """Let main show what the branch has now, or had; with `is_trial` only say what that would be.

        Args:
            tag: The name of a snapshot of the branch; None: its newest.
            is_trial: Change nothing.

        Raises:
            LakeError: There is no branch but main, or no such tag; or main has something that is not in what would be
                published.
            ForeignChange: Others commit all the time; nothing was done.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._handle.changing():
                    return self._publish(tag, is_trial=is_trial)
            except (ForeignChange, OutcomeUnknown):  # the next look says what there is
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError

    def _publish(self, tag: str | None, *, is_trial: bool) -> Published:
        base, change = self._begin()
        found = self._found(tag)
        if not is_trial and found.before != found.after:
            change.setBranchSnapshot(found.after, MAIN)
            self._end(base, change)
        return found

    def _found(self, tag: str | None) -> Published:
        java, name = self._handle.java, self.name
        if name == MAIN:
            raise LakeError(f"{self._place}: main is written, so there is nothing to publish", hint=_NO_BRANCH)
        newest, main = java.snapshot(name), java.currentSnapshot()
        before = None if main is None else int(main.snapshotId())
        head = before if newest is None else int(newest.snapshotId())
        if before is not None and head is not None and not self._is_behind(head, before):
            raise LakeError(
                f"{self._place}: main has snapshot {before}, from which the branch {name} does not descend",
                hint="someone else wrote to main, or expired its snapshots: look at it, and then"
                f" CALL system.set_current_snapshot('{self._handle.name}', {head}) has it show the branch",
            )
        after = head if tag is None or head is None else self._tagged(tag, head, before)
        return Published(branch=name, before=before, after=after)

    def _tagged(self, tag: str, head: int, main: int | None) -> int:
        """Return the snapshot that a tag names, between main and the newest of the branch.

        Raises:
            LakeError: It is not there.
        """
        there = self._handle.java.refs().get(tag)
        if there is None or bool(there.isBranch()):
            raise LakeError(
                f"{self._place}: there is no tag {tag}",
                hint="make a cut: `kuvasz cut --name …` tags all tables, for `cuts.keep` unless it says --keep",
            )
        at = int(there.snapshotId())
        if not self._is_behind(head, at):
            raise LakeError(
                f"{self._place}: the tag {tag} has snapshot {at}, from which the branch {self.name} does not descend",
                hint="it was set back since, or is another branch; make a cut: `kuvasz cut --name …`",
            )
        if main is not None and self._number_of(main) > self._number_of(at):
            raise LakeError(
                f"{self._place}: main has snapshot {main}, which came after {at} of the tag {tag}",
                hint=f"CALL system.set_current_snapshot('{self._handle.name}', {at}) sets it back",
            )
        return at

    def _is_behind(self, head: int, ancestor: int) -> bool:
        """Whether the newest snapshot of the branch descends from another one, as far as anybody knows."""
        return ancestor in self._noted() or self._descends(head, ancestor)

    def _number_of(self, snapshot: int) -> int:
        """Return the place of a snapshot among all of the table (Iceberg spec, sequence numbers)."""
        return int(self._handle.java.snapshot(snapshot).sequenceNumber())


_NO_BRANCH: Final = "set `branch` of the table, or `lake.branch`, in the map, and start kuvasz with it"

__all__ = ["Branch"]
