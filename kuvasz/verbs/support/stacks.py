"""The part with the stacks of the running process's threads as a signal has them: also where HTTP does not answer."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.admin.report import stack_file
from kuvasz.verbs.support import process
from kuvasz.verbs.support.part import PartFiles

if TYPE_CHECKING:
    from kuvasz.config.model import Config

#: The stacks are there when the file has not grown for so long.
_QUIET_S = 0.3
_LOOK_S = 0.05


def gather(config: Config) -> PartFiles:
    """Have the running kuvasz write its stacks, and return them.

    Raises:
        KuvaszError: None runs here.
        OSError: It ended meanwhile.
    """
    folder = config.pipeline.state_folder
    pid, path = process.owner(folder), folder / stack_file.FILE
    before = path.stat().st_size
    os.kill(pid, stack_file.SIGNAL)
    return PartFiles(files={"threads-by-signal.txt": _grown(path, before)})


def _grown(path: Path, before: int) -> str:
    """Return what a file gets; the part's own time ends the waiting."""
    size, since = before, time.monotonic()
    while size == before or time.monotonic() - since < _QUIET_S:
        time.sleep(_LOOK_S)
        if (now := path.stat().st_size) != size:
            size, since = now, time.monotonic()
    with path.open("rb") as file:
        file.seek(before)
        return file.read().decode("utf-8", "replace")


__all__ = ["gather"]
