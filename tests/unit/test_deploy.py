"""What is deployed with: the unit for systemd."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy" / "kuvasz.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # Neither the program nor the user need be there for that.
    text = UNIT.read_text("utf-8").replace("/opt/kuvasz/bin/kuvasz", "/bin/true").replace("User=kuvasz", "User=root")
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, told) == (0, []), done.stderr


def test_a_stop_is_for_kuvasz_alone_and_has_the_time_it_needs() -> None:
    options = dict(line.split("=", 1) for line in UNIT.read_text("utf-8").splitlines() if "=" in line[1:])
    assert options["KillMode"] == "mixed"
    assert int(options["TimeoutStopSec"]) > 30
    assert options["RestartPreventExitStatus"].split() == ["2", "3", "5"]
    assert options["RestartForceExitStatus"] == "SIGHUP", "else an early reload would be a clean end"
