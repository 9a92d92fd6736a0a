"""The points at which tests kill kuvasz, by what kuvasz does when it passes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from kuvasz import failpoints

#: Passed while tables are copied, which is at the beginning.
COPYING = ("before_slot", "slot_created", "snapshot_taken", "copy_range_done")

#: Passed around every exchange of files.
EXCHANGING = ("before_rewrite", "after_rewrite", "before_swap", "after_swap")

#: Passed all the time.
STREAMING = (
    "before_data_files", "after_data_files", "before_delete_files", "after_delete_files", "before_commit",
    "after_commit", "before_durable", "after_durable", "before_status", "after_status", *EXCHANGING,
)  # fmt: skip

#: Passed when it is told to stop.
STOPPING = ("shutdown", "before_checkpoint", "after_checkpoint")

#: Passed where an index is kept in a store.
KEEPING = ("index_runs_kept", "index_kept")

#: Passed where changes are staged.
STAGING = ("before_stage", "object_written", "staged")

#: Passed with changes of a table that does not follow.
PARKING = ("before_park", "after_park", "park_noted", "park_written", "before_unpark", "after_unpark", "replay_read",
           "replay_applied")  # fmt: skip

#: Passed on the way over a gap alone, or in a copy too.
REPAIRING = ("position_forgotten", "slot_dropped", "before_slot", "slot_created", "snapshot_taken", "gap_compared")

#: Passed when rows that do not fit are written down, and their own commit is still to come.
REJECTING = ("rejects_kept",)

#: Passed when one table of a cut is tagged.
CUTTING = ("cut_tagged",)

#: Passed once a day.
DAILY = ("before_orphans",)

#: Passed by who erases rows, which no running kuvasz does.
ERASING = ("erasing",)

#: Points on the way of a source that pg_upgrade has made anew; see tests/acceptance/test_major_upgrade.py.
UPGRADING = ("source_relocated",)

#: Each kills one run; counts are chosen to fall into the copy, the catching up and the stream.
KILLS = (
    "before_slot:kill",
    "slot_created:kill",
    "snapshot_taken:kill:2",
    "copy_range_done:kill:1",
    "before_data_files:kill:3",
    "after_data_files:kill:5",
    "before_delete_files:kill:4",
    "after_delete_files:kill:6",
    "before_commit:kill:7",
    "after_commit:kill:8",
    "before_durable:kill:6",
    "after_durable:kill:10",
    "before_status:kill:5",
    "after_status:kill:7",
)

#: Each kills one run while it stops.
KILLS_WHILE_IT_STOPS = ("shutdown:kill", "before_checkpoint:kill", "after_checkpoint:kill:2")


@contextlib.contextmanager
def failing(*names: str) -> Iterator[None]:
    """Let every pass of some points fail, in this process."""
    before = failpoints.hit

    def hit(name: str, error: Callable[[str], Exception] = RuntimeError) -> None:
        before(name, error)
        if name in names:
            raise error(f"failpoint {name}")

    failpoints.hit = hit
    try:
        yield
    finally:
        failpoints.hit = before
