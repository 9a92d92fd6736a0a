"""The process with a state folder is found by what nobody else has, for a signal ends whoever does not expect it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.admin.report import stack_file
from kuvasz.errors import StateError
from kuvasz.verbs.support import process

PROGRAM = """
import pathlib, subprocess, sys
from kuvasz.admin.report import stack_file
stack_file.listen(pathlib.Path(sys.argv[1]))
with subprocess.Popen(["sleep", "60"]) as helper:
    print(helper.pid, flush=True)
    sys.stdin.read()
    helper.kill()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process with a state folder, and a helper of it."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as made:
        assert made.stdout is not None
        yield made.pid, int(made.stdout.readline())
        made.communicate()


def test_the_owner_and_what_it_started_are_found(running: tuple[int, int], tmp_path: Path) -> None:
    pid, helper = running
    assert process.owner(tmp_path) == pid
    assert process.below(pid, "sleep") == [helper]
    assert process.below(os.getpid(), "sleep") == [helper], "at any depth"
    assert process.below(helper, "sleep") == []
    assert process.name(helper) == "sleep"
    assert process.name(1 << 30) == ""
    assert process.catches(pid, stack_file.SIGNAL)
    assert not process.catches(helper, signal.SIGQUIT)


def test_a_process_that_only_has_the_number_is_not_the_owner(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no kuvasz runs here"):
        process.owner(tmp_path)
    for text in ("", "no json", '{"pid": "x"}', json.dumps({"pid": 1 << 30}), json.dumps({"pid": os.getppid()})):
        (tmp_path / stack_file.FILE).write_text(text)
        with pytest.raises(StateError, match="no kuvasz runs here"):
            process.owner(tmp_path)


def test_nor_is_one_that_has_another_file_of_that_name(running: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / stack_file.FILE
    text = path.read_text()
    path.unlink()
    path.write_text(text)
    with pytest.raises(StateError, match="no kuvasz runs here"):
        process.owner(tmp_path)
