"""The daemon loads before it forks, and begins whatever happens to that."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark.daemon
import pytest

from kuvasz.lake.executors import daemon, warmup
from kuvasz.lake.files import file_io


@pytest.mark.parametrize("error", [None, RuntimeError("no room for kernels")], ids=["loaded", "not loaded"])
def test_everything_is_loaded_and_frozen_before_workers_are_forked(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    done: list[str] = []

    def load() -> None:
        assert not gc.isenabled(), "modules are no garbage"
        done.append("load")
        if error is not None:
            raise error

    monkeypatch.setattr(warmup, "load", load)
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(pyspark.daemon, "manager", lambda: done.append("manager"))
    daemon.main()
    assert gc.isenabled(), "workers have garbage"
    assert done == ["load", "freeze", "manager"]


@pytest.mark.process
def test_pandas_is_there_for_who_asks_for_it_and_not_loaded_with_the_rest() -> None:
    program = (
        "import sys; from kuvasz.lake.executors import daemon\n"
        "import pyspark.daemon; pyspark.daemon.manager = lambda: None\n"
        "daemon.main(); print('pandas' in sys.modules)\n"
        "import pandas, pyarrow; print(pyarrow.table({'a': [1]}).to_pandas().a.sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]


@pytest.mark.process
def test_python_workers_are_forked_with_what_they_need_and_little_more() -> None:
    program = (
        "import sys; from kuvasz.lake.executors import daemon\n"
        "import pyspark.daemon; pyspark.daemon.manager = lambda: None\n"
        "daemon.main(); print(*sys.modules)\n"
    )
    command = [sys.executable, "-c", program, "pyspark.worker"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"pandas", "pyarrow.dataset", "pyiceberg", "pydantic", "asyncio"}
    assert {"kuvasz.modes.clone", "pyspark.worker", "pyarrow.parquet", "numba"} <= loaded
    assert len(loaded) <= 930  # 886 with coverage; it was 1,088


@pytest.mark.process
def test_a_daemon_that_is_told_so_forks_workers_with_pyiceberg() -> None:
    program = (
        "import sys; from kuvasz.lake.executors import daemon\n"
        "import pyspark.daemon; pyspark.daemon.manager = lambda: None\n"
        "daemon.main(); print('pyiceberg.io.pyarrow' in sys.modules, 'pandas' in sys.modules)\n"
    )
    command, told = [sys.executable, "-c", program], {**os.environ, file_io.PRELOADED: "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=told)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("is_same", [True, False])
@pytest.mark.process
def test_pyspark_is_loaded_from_an_archive_only_where_that_is_of_another_spark(
    tmp_path: Path, *, is_same: bool
) -> None:
    """Spark puts its archives before everything else on the path."""
    there = Path(pyspark.__file__).parent / "python" / "lib"
    if not is_same:
        there = Path(shutil.copytree(there, tmp_path / "lib"))
    archives = sorted(map(str, there.glob("*.zip")))
    assert len(archives) == 2
    program = (
        "import sys; from kuvasz.lake.executors import daemon; daemon._spare_archives()\n"
        "import pyspark, py4j; print('.zip' in pyspark.__file__, '.zip' in py4j.__file__)\n"
        "known = *sys.path, *sys.path_importer_cache\n"
        "print(*[one for one in known if 'pyspark.zip' in one or 'py4j-' in one])\n"
    )
    path = os.pathsep.join([*archives, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path}, cwd=Path(__file__).parents[4],
    )  # fmt: skip
    first, rest = done.stdout.splitlines()
    assert first == ("False False" if is_same else "True True")
    assert bool(rest) != is_same
