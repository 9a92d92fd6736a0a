"""The daemon loads before it forks, and begins whatever happens to that."""

from __future__ import annotations

import gc
import subprocess
import sys

import pyspark.daemon
import pytest

from kuvasz.lake.executors import daemon, warmup


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


def test_pandas_is_there_for_who_asks_for_it_and_not_loaded_with_the_rest() -> None:
    program = (
        "import sys; from kuvasz.lake.executors import daemon\n"
        "import pyspark.daemon; pyspark.daemon.manager = lambda: None\n"
        "daemon.main(); print('pandas' in sys.modules)\n"
        "import pandas, pyarrow; print(pyarrow.table({'a': [1]}).to_pandas().a.sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]
