"""Facts of the machine; of the environment only what is set, and of processes not how they were called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kuvasz.verbs.support import machine, process
from tests.support.maps import SHOP, loaded


def test_cores_limits_and_disks_are_told_and_variables_by_their_names(tmp_path: Path) -> None:
    config = loaded(tmp_path, SHOP).config
    found = machine.gather(
        config, {"KUVASZ_CONFIG": "geheim", "PGPASSWORD": "geheim", "HTTPS_PROXY": "x", "HOME": "y"}
    )
    assert "geheim" not in json.dumps(found.files)
    told = found.files["machine.json"]
    assert told["variables"] == ["HTTPS_PROXY", "KUVASZ_CONFIG", "PGPASSWORD"]
    assert told["cores"]["ours"] >= 1
    assert "MemTotal" in told["memory"]
    assert "RLIMIT_NOFILE" in told["limits_of_this_command"]
    disks = found.files["disks.json"]
    assert not disks["warehouse"]["is_there"]
    assert disks["warehouse"]["free"] > 0
    assert disks["temporary files"]["file_system"] != "?"
    assert "no kuvasz runs here" in found.files["processes.json"]["error"]


def test_the_running_process_is_told_without_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "owner", lambda _: os.getpid())
    found = machine.gather(loaded(tmp_path, SHOP).config).files["processes.json"][str(os.getpid())]
    assert found["open_files"] > 0
    assert any(line.startswith("Max open files") for line in found["limits"])
    assert "cmdline" not in found
