"""Where tests keep lakes, state folders and all else: in memory if there is room, so that nothing waits for a disk.

What is synced to a disk survives the machine's end, which no test brings about; what a killed process wrote is there
in either place.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import psutil

_MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of its own is made in it)

#: Less room than that is left to others.
_ROOM_BYTES = 4 << 30


def new_folder(prefix: str) -> Path:
    """Make a folder, which its owner removes.

    Args:
        prefix: Of its name.
    """
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory()))


def memory() -> Path | None:
    """Return the folder that is in memory; None if there is no room."""
    if not _MEMORY.is_dir():
        return None
    room = min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available)
    return _MEMORY if room > _ROOM_BYTES else None
