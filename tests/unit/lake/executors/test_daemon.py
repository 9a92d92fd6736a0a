"""The daemon loads before it forks, and begins whatever happens to that."""

from __future__ import annotations

import gc

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
