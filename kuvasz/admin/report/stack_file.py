"""The stacks of all threads, written into a file when a signal asks: also while the event loop hangs.

`kuvasz support` knows by the descriptor of the file whose process it is: nobody else has it open.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
from pathlib import Path
from typing import Final

#: In the state folder.
FILE: Final = "stacks.txt"

SIGNAL: Final = signal.SIGUSR2


def listen(folder: Path) -> None:
    """Have the signal write the stacks of this process into the file of a state folder, until the process ends.

    Where the file cannot be made there are no stacks: nobody needs them to replicate.
    """
    path = folder / FILE
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)  # it stays open
        os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n")
        faulthandler.register(SIGNAL, file=descriptor, all_threads=True)


__all__ = ["FILE", "SIGNAL", "listen"]
