"""A running kuvasz as a process under measurement: its events as they come, and its end."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

#: What is measured.
COMMAND = (sys.executable, "-m", "kuvasz")

#: Limits on a start and on all else, far above what is expected: a run that hangs must end.
START_S, APPLY_S = 300.0, 7200.0
#: Lines for who looks for a defect are not measured with a fleet: three a second and busy source, twenty a start.
AS_USERS_LOG = ("--log-level", "info")


class Run:
    """One process; a context manager that leaves none behind.

    Args:
        folder: It runs in it, and its log goes there.
        map_file: What it replicates.
        options: Further ones.
        command: Instead of `COMMAND`: something that takes the same options.
    """

    def __init__(self, folder: Path, map_file: Path, options: tuple[str, ...], command: tuple[str, ...] = ()) -> None:
        self.log = folder / "kuvasz.log"
        self._named: collections.defaultdict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        self.started_at = time.time()
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [*(command or COMMAND), "--config", str(map_file), "--log", "json", "--log-level", "debug", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])},
        )
        self._reader = threading.Thread(target=self._read, name="kuvasz-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The driver's process number."""
        return self._process.pid

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the events so far of a name, or of ``<part>.<name>``."""
        with self._news:
            return list(self._named[name])

    def wait_for(self, name: str, *, timeout_s: float, count: int = 1) -> list[dict[str, Any]]:
        """Wait for `count` events of a name and return all of it.

        Raises:
            RuntimeError: kuvasz ended, or the time is over.
        """
        return self._wait(name, timeout_s, lambda found: len(found) >= count)

    def wait_rows(self, rows: int, *, timeout_s: float) -> list[dict[str, Any]]:
        """Wait until kuvasz says to have committed this many row changes and return its events ``committed``."""
        return self._wait("committed", timeout_s, lambda found: sum(event["rows"] for event in found) >= rows)

    def _wait(self, name: str, timeout_s: float, is_enough: Any) -> list[dict[str, Any]]:
        end_at = time.monotonic() + timeout_s
        while not is_enough(found := self.named(name)):
            self.check()
            if time.monotonic() > end_at:
                raise RuntimeError(f"kuvasz did not say {name!r} as often as hoped within {timeout_s:.0f} s:"
                                   f" {len(found)}\n{self.tail()}")  # fmt: skip
            with self._news:
                self._news.wait(0.1)
        return found

    def check(self) -> None:
        """Raise RuntimeError if kuvasz has ended and all it said has been read, or if a table has stopped."""
        if self._process.poll() is not None and not self._reader.is_alive():
            raise RuntimeError(f"kuvasz ended with {self._process.returncode}\n{self.tail()}")
        for name in ("table_failed", "source_stopped", "source_failed"):
            if found := self.named(name):
                raise RuntimeError(f"{name}: {found[0].get('error')}\n{self.tail()}")

    def end(self) -> None:
        """Ask kuvasz to stop and wait for it.

        Raises:
            RuntimeError: It did not end with 0.
        """
        self._process.send_signal(signal.SIGTERM)
        self.wait(60)

    def wait(self, timeout_s: float) -> None:
        """Wait for kuvasz to end by itself.

        Raises:
            RuntimeError: It did not end in time, or not with 0.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"kuvasz did not end within {timeout_s:.0f} s\n{self.tail()}") from None
        self._reader.join(5)
        if code != 0:
            raise RuntimeError(f"kuvasz ended with {code}\n{self.tail()}")

    def tail(self) -> str:
        """Return the end of what kuvasz said."""
        return self.log.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self.log.open("ab") as log:
            for line in self._process.stderr:
                log.write(line)
                log.flush()
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        with self._news:
                            seen = {"seen_at": time.time(), **event}
                            self._named[str(event.get("event")).rpartition(".")[2]].append(seen)
                            self._news.notify_all()
