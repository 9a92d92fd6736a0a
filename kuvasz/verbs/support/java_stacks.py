"""The part with the stacks of Spark's JVM, asked as `jstack` does: many machines have a Java without that.

A JVM of HotSpot that finds the file `.attach_pid<pid>` when SIGQUIT comes listens on a socket of its own, for its own
user alone (OpenJDK, `attachListener_posix.cpp` and `VirtualMachineImpl.java`).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.errors import StateError
from kuvasz.verbs.support import process
from kuvasz.verbs.support.part import PartFiles

if TYPE_CHECKING:
    from kuvasz.config.model import Config

_COMMAND = b"1\0threaddump\0\0\0\0"
_DONE = b"0\n"
_ANSWER_S = 8.0
_LOOK_S = 0.1


def gather(config: Config) -> PartFiles:
    """Return the stacks of the JVM below the running kuvasz.

    Raises:
        KuvaszError: There is none here, or it does not answer.
        OSError: It ended meanwhile.
    """
    found = process.below(process.owner(config.pipeline.state_folder), "java")
    if not found:
        raise StateError("the running kuvasz has no JVM", hint="Spark may not have started yet")
    return PartFiles(files={"threads-of-java.txt": dump(found[0])})


def dump(pid: int) -> str:
    """Return the stacks of a JVM's threads.

    Raises:
        StateError: It does not answer.
        OSError: It is gone.
    """
    within = _number_within(pid)
    folder = Path(f"/proc/{pid}/root/tmp")
    place = folder / f".java_pid{within}"
    if not place.is_socket():
        _have_it_listen(pid, folder / f".attach_pid{within}", place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(str(place))
        connection.sendall(_COMMAND)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    if not answer.startswith(_DONE):
        raise StateError("the JVM does not tell its stacks", hint="see whether `jcmd` can be had there")
    return answer.removeprefix(_DONE).decode("utf-8", "replace")


def _have_it_listen(pid: int, file: Path, place: Path) -> None:
    if not process.catches(pid, signal.SIGQUIT):  # it would end it
        raise StateError("the JVM takes no questions", hint="it was started with -Xrs")
    end = time.monotonic() + _ANSWER_S
    file.touch(0o600)
    try:
        os.kill(pid, signal.SIGQUIT)
        while not place.is_socket():
            if time.monotonic() > end:
                raise StateError("the JVM does not answer", hint="see `jcmd`, or its own output")
            time.sleep(_LOOK_S)
    finally:
        file.unlink(missing_ok=True)


def _number_within(pid: int) -> str:
    """Return the number that a process has in its own namespace, as in a container."""
    found = re.search(r"^NSpid:\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found[1].split()[-1] if found else str(pid)


__all__ = ["dump", "gather"]
