"""The stacks of a real JVM, without jstack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.verbs.support import java_stacks
from tests.support.maps import SHOP, loaded

PROGRAM = """
public class Waits {
    public static void main(String[] given) throws Exception {
        System.out.println("ready");
        System.in.read();
    }
}
"""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return found or pytest.skip("there is no java")


@pytest.mark.process
def test_a_jvm_tells_its_stacks_as_often_as_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "Waits.java").write_text(PROGRAM)
    command = [java(), str(tmp_path / "Waits.java")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(2):
            assert "Waits.main" in java_stacks.dump(process.pid)
        told, _ = process.communicate("x")
    assert told == "", "nothing is written to its own output"


def test_what_a_question_would_end_is_not_asked() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(StateError, match="takes no questions"):
            java_stacks.dump(process.pid)
        assert process.poll() is None
        process.communicate(b"\n")


def test_where_none_runs_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no kuvasz runs here"):
        java_stacks.gather(loaded(tmp_path, SHOP).config)
