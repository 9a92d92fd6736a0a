"""The part with the machine: cores, memory, limits, room on disks. Of the environment the names alone are told."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kuvasz.errors import StateError
from kuvasz.verbs.support import process
from kuvasz.verbs.support.part import PartFiles

if TYPE_CHECKING:
    from kuvasz.config.model import Config

#: Variables that something here goes by.
_NAMES = re.compile(
    r"KUVASZ_.*|SPARK_.*|PYSPARK_.*|JAVA_.*|JDK_.*|AWS_.*|PG[A-Z]+|.*_proxy|LANG|LC_.*|TZ|HADOOP_.*", re.IGNORECASE
)

#: What limits a process of a container (kernel, "Control Group v2"; and what version 1 called them).
_CGROUP = (
    "memory.max",
    "memory.current",
    "cpu.max",
    "pids.max",
    "memory/memory.limit_in_bytes",
    "cpu/cpu.cfs_quota_us",
)
_CGROUPS = Path("/sys/fs/cgroup")

_MEMORY = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "Shmem")
_PROCESS = ("Name", "State", "VmRSS", "VmSwap", "Threads", "voluntary_ctxt_switches")


def gather(config: Config, environ: Mapping[str, str] = os.environ) -> PartFiles:
    """Return what matters of the machine, and of the processes that run on it."""
    told = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _distribution(),
        "cores": {"there": os.cpu_count(), "ours": len(os.sched_getaffinity(0))},
        "load": os.getloadavg(),
        "memory": _fields(Path("/proc/meminfo"), _MEMORY),
        "cgroup": {name: found for name in _CGROUP if (found := _line(_CGROUPS / name))},
        "limits_of_this_command": _limits(),
        "variables": sorted(name for name in environ if _NAMES.fullmatch(name)),
    }
    return PartFiles(files={"machine.json": told, "disks.json": _disks(config), "processes.json": _processes(config)})


def _distribution() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", "?")
    return "?"


def _limits() -> dict[str, tuple[int, int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def _disks(config: Config) -> dict[str, Any]:
    """Return the room where kuvasz writes: local places alone."""
    lake = config.lake
    places = {
        "state folder": config.pipeline.state_folder,
        "catalog": None if lake.sqlite_file is None else lake.sqlite_file.parent,
        "warehouse": lake.warehouse_path,
        "shared memory": Path("/dev/shm"),  # noqa: S108 (looked at)
        "temporary files": Path(tempfile.gettempdir()),
    }
    return {what: _room(place) for what, place in places.items() if place is not None}


def _room(place: Path) -> dict[str, Any]:
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    room, found = shutil.disk_usage(there), os.statvfs(there)
    return {
        "place": str(place), "is_there": there == place, "file_system": _file_system(there), "bytes": room.total,
        "free": room.free, "inodes": found.f_files, "free_inodes": found.f_favail,
    }  # fmt: skip


def _file_system(place: Path) -> str:
    """Return the kind of the file system that a place is on."""
    with contextlib.suppress(OSError):
        lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        mounted = [(Path(line[1]), line[2]) for line in lines if len(line) > 2]
        on = [(len(where.parts), kind) for where, kind in mounted if place.resolve().is_relative_to(where)]
        return max(on)[1] if on else "?"
    return "?"


def _processes(config: Config) -> dict[str, Any]:
    """Return facts of the running kuvasz and all below it; their command lines may have secrets, and are not told."""
    try:
        pid = process.owner(config.pipeline.state_folder)
    except StateError as error:
        return {"error": error.message}
    names = ("java", process.name(pid))
    every = [pid, *(one for name in dict.fromkeys(names) for one in process.below(pid, name))]
    return {str(one): _process(Path("/proc") / str(one)) for one in every}


def _process(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = {}
    with contextlib.suppress(OSError):  # it ended meanwhile
        told |= _fields(folder / "status", _PROCESS)
        told["limits"] = (folder / "limits").read_text().splitlines()[1:]
        told["open_files"] = sum(1 for _ in (folder / "fd").iterdir())
    return told


def _fields(file: Path, names: tuple[str, ...]) -> dict[str, str]:
    with contextlib.suppress(OSError):
        lines = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        return {name: lines[name].strip() for name in names if name in lines}
    return {}


def _line(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text().strip()
    return ""


__all__ = ["gather"]
