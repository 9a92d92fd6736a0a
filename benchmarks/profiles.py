"""Profiles of a running kuvasz as pictures: py-spy for driver and Python workers, JFR for the JVM.

Each tool is used if it is at hand. py-spy draws flame graphs (SVG) itself; what JFR samples is drawn here (PNG), and
kept as collapsed stacks for other tools. A profile costs time: figures of a profiled run are not results.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks import plots

if TYPE_CHECKING:
    from collections.abc import Callable

#: Samples a second.
_RATE = 100

#: Seconds in which JVM and workers must have appeared.
_PATIENCE_S = 120.0

_FRAME = re.compile(r"^\s+([\w.$<>/]+)\(")


class Profiles:
    """A context manager: profiles what happens inside.

    Args:
        pid: The driver.
        folder: Where the pictures go.
        name: What they begin with.
    """

    def __init__(self, pid: int, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._pid = pid
        self._stem = folder / name
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._spy, args=("driver", self._driver, ())),
            threading.Thread(target=self._spy, args=("workers", self._workers, ("--subprocesses",))),
            threading.Thread(target=self._fly),
        ]

    def __enter__(self) -> Profiles:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _spy(self, part: str, find: Callable[[], int | None], options: tuple[str, ...]) -> None:
        program, pid = _beside("py-spy"), self._await(find)
        if program is None or pid is None:
            return
        picture = f"{self._stem}-{part}.svg"
        command = [program, "record", "--pid", str(pid), "--output", picture, "--rate", str(_RATE), *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self._ended.wait(0.1) and process.poll() is None:
            pass
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)  # it draws, and ends
        process.wait()

    def _fly(self) -> None:
        control, reader, pid = _java("jcmd"), _java("jfr"), self._await(self._jvm)
        if control is None or reader is None or pid is None:
            return
        recording = Path(f"{self._stem}-jvm.jfr").absolute()
        start = ["JFR.start", "name=bench", "settings=profile", "dumponexit=true", f"filename={recording}"]
        subprocess.run([control, str(pid), *start], capture_output=True, check=False)
        while not self._ended.wait(0.1) and psutil.pid_exists(pid):
            pass
        subprocess.run([control, str(pid), "JFR.stop", "name=bench", f"filename={recording}"],
                       capture_output=True, check=False)  # fmt: skip
        if recording.exists():
            # Not jdk.NativeMethodSample: most of those are threads that wait for a socket.
            printed = subprocess.run(
                [reader, "print", "--events", "jdk.ExecutionSample", "--stack-depth", "64", str(recording)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            self._draw(collapse(printed.stdout))

    def _draw(self, stacks: collections.Counter[tuple[str, ...]]) -> None:
        lines = [f"{';'.join(stack)} {count}\n" for stack, count in stacks.most_common()]
        Path(f"{self._stem}-jvm.collapsed").write_text("".join(lines))
        if stacks:
            plots.flames(stacks, Path(f"{self._stem}-jvm.png"))

    def _await(self, find: Callable[[], int | None]) -> int | None:
        for _ in range(int(_PATIENCE_S * 10)):
            if (found := find()) is not None:
                return found
            if self._ended.wait(0.1):
                break
        return find()

    def _driver(self) -> int | None:
        return self._pid

    def _jvm(self) -> int | None:
        return next((process.pid for process in self._children() if "java" in process.name()), None)

    def _workers(self) -> int | None:
        """The process that forks the workers: the JVM's first Python child."""
        jvm = self._jvm()
        found = [process for process in self._children() if jvm is not None and process.ppid() == jvm]
        return next((process.pid for process in found if "python" in process.name()), None)

    def _children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._pid).children(recursive=True)
        return []


def collapse(printed: str) -> collections.Counter[tuple[str, ...]]:
    """Return how often each stack, outermost frame first, stands in what ``jfr print`` wrote."""
    stacks: collections.Counter[tuple[str, ...]] = collections.Counter()
    for event in printed.split("\n\n"):
        frames = [match[1] for line in event.partition("stackTrace")[2].splitlines() if (match := _FRAME.match(line))]
        if frames:
            stacks[tuple(reversed(frames))] += 1
    return stacks


def _beside(name: str) -> str | None:
    """Return a program of our own environment, or of the system."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def _java(name: str) -> str | None:
    beside = Path(os.environ.get("JAVA_HOME", "/nonexistent")) / "bin" / name
    return str(beside) if beside.exists() else shutil.which(name)
