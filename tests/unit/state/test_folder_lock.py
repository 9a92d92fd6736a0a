from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.errors import StateError, StateTaken
from kuvasz.state.folder_lock import FILE, FolderLock

OWNER = """
import sys, time
from pathlib import Path
from kuvasz.state.folder_lock import FolderLock
FolderLock(Path(sys.argv[1]), "replicates").take()
print("taken", flush=True)
time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the folder."""
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_another_process_is_told_who_owns_the_folder(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(StateTaken) as caught:
        FolderLock(tmp_path, "notes").take(patience_s=0)
    told, hint = str(caught.value).split("\nhint: ")
    assert told.startswith(
        f"the state folder {tmp_path} is in use: process {owner.pid} on {socket.gethostname()} replicates since 20"
    )
    assert hint == "one kuvasz at a time: stop that one; another map needs a `pipeline.state` of its own"
    assert caught.value.exit_code == 2


def test_a_killed_owner_owns_nothing(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    with FolderLock(tmp_path, "notes"):
        pass


def test_one_that_notes_something_is_waited_for(tmp_path: Path) -> None:
    first = FolderLock(tmp_path / "made", "notes a pause in it")
    first.take()
    threading.Timer(0.2, first.give_back).start()
    begin = time.monotonic()
    with FolderLock(tmp_path / "made", "replicates"):
        assert time.monotonic() - begin >= 0.15
        with pytest.raises(StateTaken, match=f"process {os.getpid()} on .* replicates since"):
            FolderLock(tmp_path / "made", "notes").take(patience_s=0)
    assert (tmp_path / "made" / FILE).exists(), "one that is removed could be locked twice"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"owner\.lock cannot be locked: .*\nhint: choose a folder"):
        FolderLock(tmp_path / "file", "replicates").take()


def test_an_owner_that_has_not_signed_yet_is_another_process(tmp_path: Path) -> None:
    with FolderLock(tmp_path, "replicates"):
        (tmp_path / FILE).write_text("")
        with pytest.raises(StateTaken, match=r"is in use: another process holds its lock"):
            FolderLock(tmp_path, "notes").take(patience_s=0)
