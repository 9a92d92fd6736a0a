"""Where tests keep lakes and state folders: in memory if there is room, so that no commit waits for a disk.

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
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _has_room() else None))


def _has_room() -> bool:
    if not _MEMORY.is_dir():
        return False
    return min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) > _ROOM_BYTES
