"""What a release is: wheel and source distribution, built without an index, alike each time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import kuvasz

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]


def built(folder: Path) -> tuple[Path, Path]:
    """Return wheel and source distribution of this tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(tmp_path_factory.mktemp("dist"))


def test_the_wheel_is_kuvasz_and_nothing_else(release: tuple[Path, Path]) -> None:
    wheel, _ = release
    assert wheel.name == f"kuvasz-{kuvasz.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        info = f"kuvasz-{kuvasz.__version__}.dist-info"
        assert {name.split("/")[0] for name in names} == {"kuvasz", info}
        assert len([name for name in names if name.endswith(".py")]) == len(list((ROOT / "kuvasz").rglob("*.py")))
        assert "kuvasz = kuvasz.__main__:main" in content.read(f"{info}/entry_points.txt").decode()
        assert content.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert "Requires-Python: >=3.11" in content.read(f"{info}/METADATA").decode()


def test_the_source_has_what_the_documentation_builds_of_it(release: tuple[Path, Path]) -> None:
    _, source = release
    with tarfile.open(source) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    needed = {"pyproject.toml", "LICENSE", "README.md", "Makefile", "Dockerfile", "requirements/run.lock",
              "requirements/build.lock", "deploy/deb/build.sh", "deploy/kuvasz.service"}  # fmt: skip
    assert needed <= names
    assert not [name for name in names if name.startswith((".venv", ".git/", "build/", "dist/"))]


def test_they_are_the_same_each_time(release: tuple[Path, Path], tmp_path: Path) -> None:
    digests = [[hashlib.sha256(one.read_bytes()).hexdigest() for one in pair] for pair in (release, built(tmp_path))]
    assert digests[0] == digests[1]
