"""CPU and memory of all that takes part, sampled: kuvasz's driver, its JVM, its Python workers, and the source."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.processes import Process, Processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Kinds of processes that are kuvasz.
OURS = ("driver", "jvm", "workers")
SOURCE = "source"
KINDS = (*OURS, SOURCE)

_NONE: Mapping[str, float] = dict.fromkeys(KINDS, 0.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at all processes."""

    at: float  #: epoch seconds
    cpu_s: Mapping[str, float]  #: by kind, since the sampler began; what ended processes used stays in
    rss: Mapping[str, int]  #: bytes by kind; pages that forked workers share count for each of them


class Sampler:
    """Samples until left; a context manager.

    Args:
        pid: kuvasz's driver.
        servers: Data folders of the sources' servers that are to be sampled.
        interval_s: Between two samples.
    """

    def __init__(self, pid: int, servers: Sequence[Path] = (), *, interval_s: float = 0.5) -> None:
        self.samples: list[Sample] = []
        self._roots = {pid: "driver"}
        for server in servers:
            self._roots[int((server / "postmaster.pid").read_text().split()[0])] = SOURCE
        self._interval_s = interval_s
        self._used: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def mark(self) -> Sample:
        """Take a sample now and return it."""
        with self._lock:
            rss = dict.fromkeys(KINDS, 0)
            processes = Processes()
            for root, kind in self._roots.items():
                family = processes.family(root)
                for process in family:
                    name = _kind(process, root) if kind == "driver" else kind
                    rss[name] += process.rss
                    if kind != SOURCE:
                        self._used[name, process.pid] = process.cpu_s
                if kind == SOURCE:
                    self._used[kind, root] = max(self._used.get((kind, root), 0.0), _of_server(family, root))
            cpu = dict(_NONE)
            for (name, _), used in self._used.items():
                cpu[name] += used
            sample = Sample(at=time.time(), cpu_s=cpu, rss=rss)
            self.samples.append(sample)
            return sample

    def cpu_between(self, begin: float, end: float) -> dict[str, float]:
        """Return the CPU seconds by kind between two moments, interpolated between samples."""
        at = [sample.at for sample in self.samples]
        return {
            kind: float(np.diff(np.interp([begin, end], at, [sample.cpu_s[kind] for sample in self.samples]))[0])
            for kind in KINDS
        }

    def within(self, begin: float, end: float) -> list[Sample]:
        """Return the samples between two moments."""
        return [sample for sample in self.samples if begin <= sample.at <= end]

    def __enter__(self) -> Sampler:
        self.mark()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.mark()


def used(first: Sample, last: Sample) -> dict[str, float]:
    """Return the CPU seconds by kind between two samples."""
    return {kind: last.cpu_s[kind] - first.cpu_s[kind] for kind in KINDS}


def resident(samples: Sequence[Sample], kinds: Sequence[str] = ("driver", "workers")) -> list[int]:
    """Return the sum of the kinds' resident memory, sample by sample."""
    return [sum(sample.rss[kind] for kind in kinds) for sample in samples]


def _of_server(family: Sequence[Process], postmaster: int) -> float:
    """Return the CPU seconds of a server. Most of its sessions end between two looks: it knows what those used."""
    return sum(one.cpu_s + one.ended_s * (one.pid == postmaster) for one in family)


def _kind(process: Process, driver: int) -> str:
    return "driver" if process.pid == driver else "jvm" if "java" in process.name else "workers"
