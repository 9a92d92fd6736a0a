"""Named points at which a test may kill, fail or delay this process. Dead unless armed through the environment.

``KUVASZ_FAILPOINTS="before_commit:kill:3,after_commit:error"`` kills the process with SIGKILL when `before_commit` is
passed for the third time, and lets the first `after_commit` fail. Every entry acts once. Actions:

- ``kill``: SIGKILL to itself, as the out-of-memory killer or a lost machine would end it;
- ``error``: raise what the place declares as its typical failure;
- ``sleep=<seconds>``: block the thread.

Unarmed, a point costs one look at an empty tuple.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

VARIABLE = "KUVASZ_FAILPOINTS"

#: Every point there is, in the order of a change's way.
NAMES = (
    "position_forgotten",
    "slot_dropped",
    "source_relocated",
    "before_slot",
    "slot_created",
    "snapshot_taken",
    "copy_range_done",
    "gap_compared",
    "before_data_files",
    "after_data_files",
    "before_delete_files",
    "after_delete_files",
    "rejects_kept",
    "before_commit",
    "after_commit",
    "before_durable",
    "after_durable",
    "before_stage",
    "object_written",
    "staged",
    "before_park",
    "park_written",
    "after_park",
    "park_noted",
    "replay_read",
    "replay_applied",
    "before_unpark",
    "after_unpark",
    "before_status",
    "after_status",
    "shutdown",
    "before_checkpoint",
    "after_checkpoint",
    "index_runs_kept",
    "index_kept",
    "cut_tagged",
    "before_rewrite",
    "after_rewrite",
    "before_swap",
    "after_swap",
    "before_orphans",
    "erasing",
)


@dataclasses.dataclass(slots=True, kw_only=True)
class _Armed:
    """One entry; `passes` counts down to the one at which it acts."""

    name: str
    action: str
    passes: int
    seconds: float = 0.0


def _parse(text: str) -> tuple[_Armed, ...]:
    return tuple(_entry(part.strip()) for part in text.split(",") if part.strip())


def _entry(part: str) -> _Armed:
    name, _, rest = part.partition(":")
    action, _, count = rest.partition(":")
    action, _, seconds = action.partition("=")
    if name not in NAMES or action not in {"kill", "error", "sleep"} or (action == "sleep") != bool(seconds):
        raise ValueError(f"{VARIABLE}: {part!r} is not name:action[:count] of a known point and action")
    return _Armed(name=name, action=action, passes=int(count or 1), seconds=float(seconds or 0))


_armed = _parse(os.environ.get(VARIABLE, ""))
_lock = threading.Lock()


def hit(name: str, error: Callable[[str], Exception] = RuntimeError) -> None:
    """Pass a point.

    Args:
        name: One of `NAMES`.
        error: Makes what the action ``error`` raises: the failure that really happens at this place.
    """
    if _armed:
        _pass(name, error)


def _pass(name: str, error: Callable[[str], Exception]) -> None:
    due = []
    with _lock:
        for entry in _armed:
            if entry.name == name:
                entry.passes -= 1
                if entry.passes == 0:
                    due.append(entry)
    for entry in due:
        sys.stderr.write(f'{{"event": "failpoint", "point": "{name}", "action": "{entry.action}"}}\n')
        sys.stderr.flush()
        if entry.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if entry.action == "error":
            raise error(f"failpoint {name}")
        time.sleep(entry.seconds)
