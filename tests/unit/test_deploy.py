"""What is deployed with: the unit for systemd, the image, and who looks for holes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "kuvasz.service"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


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


def test_the_image_begins_with_one_that_cannot_change() -> None:
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert bases
    assert [
        base for base in bases if not re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}", base)
    ] == []


def test_the_image_takes_nothing_of_python_without_a_hash() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    installs = [part for part in re.split(r"&&|\n", text) if "pip install" in part]
    assert len(installs) == 3
    assert all("--require-hashes" in one or "--no-deps --no-build-isolation ." in one for one in installs)


def test_the_image_has_its_python_compiled() -> None:
    # Its user may not write where packages are: what is not there then, is compiled anew by each start and each verb.
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert "--no-compile" not in text
    assert "PYTHONDONTWRITEBYTECODE" not in text


def test_the_workflow_audits_each_day_with_actions_that_cannot_change() -> None:
    (workflow,) = WORKFLOWS
    text = workflow.read_text("utf-8")
    assert "cron:" in text
    assert "run: make audit" in text
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []
