"""The process that replicates with a state folder, found on this machine by the file that it alone has open."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from kuvasz.admin.report import stack_file
from kuvasz.errors import StateError

_PROC = Path("/proc")


def owner(folder: Path) -> int:
    """Return the process whose stacks a signal writes into the folder's file.

    Raises:
        StateError: There is none on this machine, or none of ours.
    """
    path = (folder / stack_file.FILE).absolute()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        pid = int(json.loads(path.read_text("utf-8").partition("\n")[0])["pid"])
        inode = (path.stat().st_dev, path.stat().st_ino)
        # Numbers of processes come again, and a signal ends whoever does not expect it.
        if catches(pid, stack_file.SIGNAL) and any(inode == found for found in _open_files(pid)):
            return pid
    raise StateError(
        f"no kuvasz runs here with the state folder {folder}", hint="run this where it runs, as its user"
    )


def catches(pid: int, signal: int) -> bool:
    """Whether a process has a handler for a signal.

    Raises:
        OSError: There is no such process.
    """
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", (_PROC / str(pid) / "status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal - 1) & 1)


def below(pid: int, command: str) -> list[int]:
    """Return the processes below another one, at any depth, that run a command of this name."""
    parents = dict(_parents())
    found = []
    for candidate in parents:
        above: int | None = candidate
        while above is not None and above != pid:
            above = parents.get(above)
        if above == pid and candidate != pid and name(candidate) == command:
            found.append(candidate)
    return found


def name(pid: int) -> str:
    """Return the name of a process's command; nothing if it is gone."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "comm").read_text().strip()
    return ""


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each process with its parent."""
    for entry in _PROC.iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The command's name stands in brackets, and may hold anything.
            yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _open_files(pid: int) -> Iterator[tuple[int, int]]:
    for entry in (_PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(OSError):
            found = entry.stat()
            yield found.st_dev, found.st_ino


__all__ = ["below", "catches", "name", "owner"]
