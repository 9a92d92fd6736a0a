"""Stacks that a signal asks for, of a process whose event loop hangs or not."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

from kuvasz.admin.report import stack_file
from tests.support.waiting import wait_until

PROGRAM = """
import pathlib, sys, time
from kuvasz.admin.report import stack_file
def hang():
    print("ready", flush=True)
    time.sleep(60)
stack_file.listen(pathlib.Path(sys.argv[1]))
hang()
"""


def test_the_signal_has_the_stacks_written_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / stack_file.FILE).write_text("of a process that is gone")
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        path = tmp_path / stack_file.FILE
        assert json.loads(path.read_text())["pid"] == process.pid
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for _ in range(2):
            before = path.stat().st_size
            os.kill(process.pid, stack_file.SIGNAL)
            wait_until(lambda before=before: b" in hang" in path.read_bytes()[before:], "the stacks are there")
        assert process.poll() is None
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_where_the_file_cannot_be_made_kuvasz_starts_all_the_same(tmp_path: Path) -> None:
    before = signal.getsignal(stack_file.SIGNAL)
    stack_file.listen(tmp_path / "missing")
    assert signal.getsignal(stack_file.SIGNAL) == before
