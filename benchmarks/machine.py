"""What a measurement was made on: machine, versions, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import psutil

from kuvasz import __version__
from kuvasz.demo.postgres import binaries

_PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "numpy", "numba", "psycopg", "duckdb")


def facts() -> dict[str, str]:
    """Return them by name."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "kuvasz": f"{__version__} {_first_line('git', 'rev-parse', '--short', 'HEAD')}".strip(),
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "system": platform.platform(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "postgresql": _first_line(str(binaries(18) / "postgres"), "--version"),
        "java": _first_line(_java(), "-version"),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def _java() -> str:
    return str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java"


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "?"
    return ((done.stdout or done.stderr).splitlines() or [""])[0] if done.returncode == 0 else "?"
