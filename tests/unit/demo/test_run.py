from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.demo import run
from kuvasz.errors import ConfigError


def test_clear_removes_what_a_demo_made(tmp_path):
    lake = tmp_path / "lake"
    run.clear(lake)
    (lake / "catalog.db").write_text("old")

    run.clear(lake)

    assert [path.name for path in lake.iterdir()] == [run.MARKER]


def test_clear_keeps_a_lake_that_no_demo_made(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "catalog.db").write_text("precious")

    with pytest.raises(ConfigError) as raised:
        run.clear(lake)

    assert str(raised.value) == (
        f"the folder {lake} holds something that the demo did not make\n"
        "hint: move it away, or run the demo in another folder"
    )
    assert (lake / "catalog.db").read_text() == "precious"


def test_the_demo_has_a_lake_and_a_state_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake").mkdir()
    (tmp_path / "map.yaml").write_text(
        "lake: {uri: 'jdbc:sqlite:lake/catalog.db', warehouse: 's3://mine/warehouse', namespace: shop}\n"
        "pipeline: {state: state}\n"
        "databases: [{database: shop, urls: [{url: postgresql:///shop}], tables: {items: }}]\n"
    )
    settings = run.Settings(config=tmp_path / "map.yaml")
    config = load(settings.config, settings.environment).config
    assert config.lake.sqlite_file == tmp_path / "demo-lake" / "catalog.db"
    assert config.lake.warehouse_location == f"file://{tmp_path}/demo-lake/warehouse"
    assert config.pipeline.state_folder == tmp_path / "demo-lake" / "state"


def test_a_kuvasz_that_does_not_stop_is_killed_with_all_it_started(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "_EXIT_S", 0.5)
    pids = tmp_path / "pids"
    program = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        f"name = {str(pids)!r}\n"
        "open(name + '.new', 'w').write(str(child.pid)); os.rename(name + '.new', name)\n"
        "time.sleep(100)\n"
    )
    with run._kuvasz([sys.executable, "-c", program]) as process:
        while not pids.exists():
            assert process.poll() is None
            time.sleep(0.02)
    assert process.returncode == -signal.SIGKILL
    assert _is_gone(int(pids.read_text()))


def test_settings_come_from_the_environment_and_flags_win(monkeypatch):
    monkeypatch.setenv("DEMO_SECONDS", "7")
    monkeypatch.setenv("DEMO_RATE", "20")

    settings = run._settings(["--rate", "30"])

    assert (settings.seconds, settings.changes_per_second) == (7.0, 30.0)


@pytest.mark.postgres
@pytest.mark.parametrize("wish", ["fails", "signal"])
def test_servers_are_stopped_and_removed_when_kuvasz_fails_and_on_a_signal(tmp_path, wish, new_data):
    """The whole demo in a process of its own, with a stand-in for kuvasz that fails or waits."""
    stand_in = tmp_path / "stand_in.py"
    ending = "sys.exit(3)" if wish == "fails" else "time.sleep(100)"
    stand_in.write_text(f"import sys, time; open('is-running', 'w').close(); {ending}")
    program = (
        "import subprocess, sys\n"
        "from kuvasz.demo import postgres, run\n"
        "original = run._kuvasz\n"
        f"run._kuvasz = lambda command: original([sys.executable, {str(stand_in)!r}])\n"
        "def no_lake(path): raise run.LakeError('no lake here')\n"
        "run._open_lake = no_lake\n"
        "start = postgres.EmbeddedPostgres.start\n"
        "def begin(server):\n"
        f"    subprocess.run(['cp', '-a', {str(new_data)!r}, str(server.folder)], check=True)\n"
        "    start(server)\n"
        "postgres.EmbeddedPostgres.start = begin\n"
        "sys.exit(run.main([]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    demo = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    if wish == "signal":
        while not (tmp_path / "is-running").exists():
            assert demo.poll() is None
            time.sleep(0.05)
        demo.send_signal(signal.SIGTERM)
    output, _ = demo.communicate(timeout=60)

    ports = [line.split("127.0.0.1:")[1].split("/")[0] for line in output.splitlines() if "_URL=" in line]
    assert len(ports) == 3
    assert demo.returncode == (3 if wish == "fails" else 143), output
    assert not (tmp_path / "demo-data").exists()
    assert not any(_listens(int(port)) for port in ports)


def _listens(port):
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _is_gone(pid):
    end_at = time.monotonic() + 5
    while time.monotonic() < end_at:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
            time.sleep(0.02)
            continue
        return True
    return False
