"""The snapshots of one Iceberg table: which one is current, where it comes from, and which are let go.

The current one is the newest of the branch that is written, `kuvasz.lake.jvm.refs.branch`: mostly the table's own.
"""

from __future__ import annotations

import bisect
import json
import time
from typing import TYPE_CHECKING, Any

from kuvasz.errors import LakeError, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kuvasz.lake.files.commit import TableCommit
    from kuvasz.lake.jvm.table_handle import TableHandle

#: Iceberg's ids of snapshots are positive.
_NO_SNAPSHOT = -1


class Snapshots:
    """The snapshots of one table, as they were at its last look."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    @property
    def current_id(self) -> int | None:
        """Id of the current snapshot, None for an empty table."""
        with self._handle.asking():
            snapshot = self._handle.head()
            return None if snapshot is None else int(snapshot.snapshotId())

    @property
    def sequence(self) -> int:
        """Sequence number of the current snapshot: that of the files it brought; 0 for an empty table."""
        with self._handle.asking():
            snapshot = self._handle.head()
            return 0 if snapshot is None else int(snapshot.sequenceNumber())

    @property
    def parent_id(self) -> int | None:
        """Id of the current snapshot's parent, None if there is none."""
        with self._handle.asking():
            snapshot = self._handle.head()
            parent = None if snapshot is None else snapshot.parentId()
            return None if parent is None else int(parent)

    @property
    def rows(self) -> int | None:
        """How many rows are in the current snapshot's files, deleted ones too; None: whoever wrote it did not say.

        Iceberg's specification calls it `total-records` ("Snapshots", "Optional Snapshot Summary Fields").
        """
        with self._handle.asking():
            snapshot = self._handle.head()
            told = "0" if snapshot is None else snapshot.summary().get("total-records")
            return None if told is None else int(told)

    @property
    def count(self) -> int:
        """How many snapshots the table has."""
        with self._handle.asking():
            return int(self._handle.java.operations().current().snapshots().size())

    @property
    def oldest_ms(self) -> int | None:
        """Time of the oldest snapshot that no tag or branch names; None if there is none."""
        with self._handle.asking():
            named = {int(ref.snapshotId()) for ref in self._handle.java.refs().values()}
            for snapshot in self._handle.java.snapshots():
                if int(snapshot.snapshotId()) not in named:
                    return int(snapshot.timestampMillis())
            return None

    def goes_on_from(self, snapshot_id: int, sequence: int) -> bool:
        """Whether the current snapshot is another one or descends from it, as far as can be seen.

        Args:
            snapshot_id: The other one.
            sequence: The sequence number of it, or of an ancestor of it. Those of a table only grow (Iceberg spec,
                "Sequence Numbers"), so behind that there is nothing to look for.

        Returns:
            Also true where ancestors were expired that could have told.
        """
        with self._handle.asking():
            snapshot = self._handle.head()
            while snapshot is not None:
                if int(snapshot.snapshotId()) == snapshot_id:
                    return True
                parent = snapshot.parentId()
                if int(snapshot.sequenceNumber()) <= sequence or parent is None:
                    return False
                if int(parent) == snapshot_id:
                    return True
                snapshot = self._handle.java.snapshot(parent)
                if snapshot is None:
                    return True
            return False

    def newest_of_summaries(self, entry: str) -> tuple[str | None, bool]:
        """Return an entry of the summary of the newest snapshot that has it; see `newest_that_says`."""
        return self.newest_that_says(lambda entry_of: entry_of(entry))

    def newest_that_says(self, say: Callable[[Callable[[str], str | None]], str | None]) -> tuple[str | None, bool]:
        """Return what the newest snapshot says that says it, of the current one and its ancestors.

        Args:
            say: Finds it in the entries of a summary; None: that one does not say it.

        Returns:
            What it says, None if there is none; and whether all ancestors were seen that could have a newer one: the
            search ends where they were expired.
        """
        with self._handle.asking():
            snapshot = self._handle.head()
            while snapshot is not None:
                value = say(snapshot.summary().get)
                if value is not None:
                    return str(value), True
                parent = snapshot.parentId()
                if parent is None:
                    return None, True
                snapshot = self._handle.java.snapshot(parent)
                if snapshot is None:
                    return None, False
            return None, True

    def newer_than(self, sequence: int, most: int | None = None) -> list[Mapping[str, Any]]:
        """Return the snapshots behind a sequence number, whatever became of them since, oldest first, as JSON.

        Those of a table only grow, and so does the list of them but for what is expired (Iceberg spec, "Sequence
        Numbers"); each is asked for by its place, for the end of a Java iterator costs as much as a commit.

        Args:
            sequence: The number.
            most: How many come back, at the most; None: all of them.
        """
        with self._handle.asking():
            known = self._handle.java.operations().current().snapshots()
            size = int(known.size())
            begin = _first_behind(lambda place: int(known.get(place).sequenceNumber()), size, sequence)
            end = size if most is None else min(size, begin + most)
            texts = (str(self._handle.classes.snapshot_json(known.get(place))) for place in range(begin, end))
            return [json.loads(text) for text in texts]

    def set_branch(self, branch: str, commit: TableCommit) -> None:
        """Let a branch point at a snapshot with other files in it; made anew if it is there."""
        with self._handle.changing():
            self._handle.renew()
            java = self._handle.java
            transaction = self._handle.classes.calls.begin(java)
            manage = transaction.manageSnapshots()
            move = manage.replaceBranch if java.refs().containsKey(branch) else manage.createBranch
            move(branch, commit.snapshot_id).commit()
            if commit.removed_files:
                plain = self._handle.classes.plain
                plain.rewrite(java, transaction, commit, branch, is_local=self._handle.is_local)
            transaction.commitTransaction()

    def tag(self, name: str, keep_ms: int) -> int | None:
        """Tag the current snapshot, so that it is kept as long as the tag is; return its id, None if there is none.

        A tag goes with the first expiry after its time (Iceberg spec, "Snapshot References", ``max-ref-age-ms``).
        """
        with self._handle.changing():
            self._handle.renew()
            if self._handle.java.refs().containsKey(name):
                raise LakeError(
                    f"{place_of(table=self._handle.name)}: there is a tag {name}", hint="choose another name"
                )
            snapshot = self._handle.head()
            if snapshot is None:
                return None
            manage = self._handle.java.manageSnapshots().createTag(name, snapshot.snapshotId())
            # Its age is the snapshot's, which an idle table has had for long.
            age = max(0, int(time.time() * 1000) - int(snapshot.timestampMillis()))
            manage.setMaxRefAgeMs(name, age + keep_ms).commit()
            return int(snapshot.snapshotId())

    def untag(self, name: str) -> None:
        """Remove a tag."""
        with self._handle.changing():
            self._handle.renew()
            self._handle.java.manageSnapshots().removeTag(name).commit()

    def expire(self, older_than_ms: int, keep: int) -> None:
        """Expire snapshots and delete what only they need."""
        with self._handle.changing():
            self._handle.renew()
            expiry = self._handle.java.expireSnapshots().expireOlderThan(older_than_ms).retainLast(keep)
            # Left to itself, Iceberg deletes every path of which an entry was removed. A file of deletion vectors has
            # many entries, and those of other data files may be alive. Once a snapshot is named, even one that is not
            # there, it deletes only what no snapshot that is left can reach.
            expiry.expireSnapshotId(_NO_SNAPSHOT)
            expiry.commit()


def _first_behind(sequence_at: Callable[[int], int], size: int, sequence: int) -> int:
    """Return the first place of a list of growing numbers that has one above another, sought from its end on.

    There it is, but for whoever has not looked for long: each number that is looked at is a call of the JVM.
    """
    step = 1
    while step <= size and sequence_at(size - step) > sequence:
        step *= 2
    return bisect.bisect_right(range(size), sequence, max(0, size - step + 1), size - step // 2, key=sequence_at)


__all__ = ["Snapshots"]
