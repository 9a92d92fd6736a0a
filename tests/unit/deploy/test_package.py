"""The Debian package: it is built, taken apart, and what it brings does what it is for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import kuvasz
from tests.support import deploy_tools

ROOT = Path(__file__).parents[3]
DEB = ROOT / "deploy" / "deb"
DEBIANS = Path("/usr/bin/python3")

pytestmark = pytest.mark.process

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None or not DEBIANS.exists(), reason="no Debian here")
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")

#: systemd's measure of what a unit may do beside its work, from 0 to 10: Java and numba need what is left.
EXPOSURE = 2.0


def run(*arguments: str | Path, **more: str) -> str:
    done = subprocess.run(
        [str(one) for one in arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **more},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package without the packages of others, which this Python has."""
    folder = tmp_path_factory.mktemp("deb")
    (folder / "none").mkdir()
    quick = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    return Path(run(DEB / "build.sh", folder, PACKAGES=str(folder / "none"), **quick).strip())


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with what the package installs."""
    folder = tmp_path_factory.mktemp("root")
    run("dpkg-deb", "-x", package, folder)
    return folder


@needs_dpkg
def test_it_says_what_it_needs(package: Path) -> None:
    told = dict(re.findall(r"^ ?(\S+): (.*)$", run("dpkg-deb", "-f", package), re.MULTILINE))
    assert (told["Package"], told["Version"]) == ("kuvasz", kuvasz.__version__)
    minor = int(run(DEBIANS, "-c", "import sys; print(sys.version_info.minor)"))
    assert f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1}), openjdk-17-jre-headless | " in told["Depends"]
    assert int(told["Installed-Size"]) > 1000


@needs_dpkg
def test_what_it_installs_is_roots_and_nobody_else_may_write_it(package: Path) -> None:
    lines = run("dpkg-deb", "-c", package).splitlines()
    assert {line.split()[1] for line in lines} == {"root/root"}
    assert [line for line in lines if line[0] != "l" and ("w" in line[5] or "w" in line[8])] == []
    named = {line.split()[5] for line in lines}
    assert {
        "./opt/kuvasz/bin/kuvasz", "./usr/bin/kuvasz", "./lib/systemd/system/kuvasz.service", "./etc/kuvasz/",
        "./etc/logrotate.d/kuvasz", "./usr/share/doc/kuvasz/copyright",
    } <= named  # fmt: skip
    assert not [name for name in named if "tests" in name]
    modules = [name for name in named if name.startswith("./opt/kuvasz/lib/kuvasz/") and name.endswith(".py")]
    assert len(modules) == len(list((ROOT / "kuvasz").rglob("*.py")))
    assert len([name for name in named if name.endswith(".pyc")]) == len(modules), "nobody can write them later"


@needs_dpkg
@pytest.mark.skipif(
    subprocess.run([str(DEBIANS), "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True,
                   check=False).stdout.split() != [str(one) for one in sys.version_info[:2]],
    reason="the packages here are for another Python than Debian's",
)  # fmt: skip
def test_its_program_runs_from_wherever_it_lies(root: Path, tmp_path: Path) -> None:
    # What lies where somebody happens to be is none of it.
    (tmp_path / "kuvasz").mkdir()
    (tmp_path / "kuvasz" / "__main__.py").write_text("raise SystemExit('this is another kuvasz')")
    done = subprocess.run(
        [str(root / "opt/kuvasz/bin/kuvasz"), "--version"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": sysconfig.get_path("platlib")},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, f"kuvasz {kuvasz.__version__}"), done.stderr


@needs_dpkg
@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_its_scripts_are_scripts(package: Path, tmp_path: Path, script: str) -> None:
    run("dpkg-deb", "-e", package, tmp_path)
    run("sh", "-n", tmp_path / script)
    assert os.access(tmp_path / script, os.X_OK)


@needs_dpkg
@needs_systemd
def test_systemd_takes_its_unit(root: Path) -> None:
    unit = root / "lib/systemd/system/kuvasz.service"
    assert unit.read_bytes() == (ROOT / "deploy" / "kuvasz.service").read_bytes()
    text = unit.read_text("utf-8")
    for name in ("opt/kuvasz/bin/kuvasz", "etc/kuvasz", "lib/systemd/system/kuvasz.service"):
        assert (root / name).exists()
    # The program is where the root is, and the user comes with the installation.
    moved = text.replace("/opt/kuvasz", f"{root}/opt/kuvasz").replace("User=kuvasz", "User=root")
    unit.write_text(moved.replace("file:///usr", f"file://{root}/usr"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if unit.name in line]
    unit.write_text(text)
    assert (done.returncode, told) == (0, []), done.stderr


@needs_systemd
def test_the_unit_may_do_little_beside_its_work() -> None:
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", ROOT / "deploy" / "kuvasz.service")
    found = re.search(r"Overall exposure level for kuvasz\.service: ([\d.]+)", done)
    assert found is not None
    assert float(found[1]) <= EXPOSURE


@needs_dpkg
@deploy_tools.needs("logrotate")
def test_logrotate_takes_its_file(root: Path, tmp_path: Path) -> None:
    logs = tmp_path / "kuvasz"
    logs.mkdir()
    (logs / "kuvasz.log").write_text("a line\n")
    text = (root / "etc/logrotate.d/kuvasz").read_text("utf-8").replace("/var/log/kuvasz", str(logs))
    mine = tmp_path / "rule"
    mine.write_text(text.replace("su kuvasz kuvasz", f"su {os.getuid()} {os.getgid()}"))
    mine.chmod(0o644)
    done = deploy_tools.run("logrotate", "--debug", "--force", "--state", tmp_path / "state", mine)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr.lower()
    assert "copying" in done.stderr
    assert "truncating" in done.stderr
