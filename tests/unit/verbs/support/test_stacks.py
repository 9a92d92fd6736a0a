"""Stacks by a signal: what the process writes now, and not what it wrote before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.verbs.support import stacks
from tests.support.maps import SHOP, loaded

PROGRAM = """
import pathlib, sys
from kuvasz.admin.report import stack_file
stack_file.listen(pathlib.Path(sys.argv[1]))
def hang():
    print("ready", flush=True)
    sys.stdin.read()
hang()
"""


def test_the_stacks_of_the_owner_are_there(tmp_path: Path) -> None:
    config = loaded(tmp_path, "pipeline: {state: state}\n" + SHOP).config
    with pytest.raises(StateError, match="no kuvasz runs here"):
        stacks.gather(config)
    (tmp_path / "state").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(2):
            (text,) = stacks.gather(config).files.values()
            assert text.count(" in hang\n") == 1
            assert str(process.pid) not in text, "it begins behind what was there"
        process.communicate()
