"""The steps by which the image is built, taken here: what they install is a kuvasz that starts.

Its first step, Debian's packages, is left out, and so is its user; its folders lie below a temporary one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def steps() -> list[tuple[str, str]]:
    """Return the instructions of the image's file, each with its words in one line."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(name, words.strip()) for name, _, words in (line.partition(" ") for line in lines if line)]


def test_all_steps_are_of_a_kind_that_is_known_here() -> None:
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL"}
    known |= {"HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in steps()} <= known


class Image:
    """What is built: a folder that is its root, and a Python of its own.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root
        self.bin = root / "python" / "bin"
        subprocess.run([sys.executable, "-m", "venv", root / "python"], check=True)
        self.environment = os.environ | {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(root / "home")}
        self.environment.pop("PYTHONPATH", None)

    def place(self, path: str) -> Path:
        """Return where a path of the image is here."""
        return self.root / path.lstrip("/") if path.startswith("/") else self.folder / path

    def take(self, name: str, words: str) -> None:
        """Take a step."""
        if name == "WORKDIR":
            self.folder = self.place(words)
            self.folder.mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            *sources, target = words.split()
            for source in sources:
                self._copy(ROOT / source, self.place(target) / ("" if target.endswith("/") else "."))
        elif name == "ENV":
            pairs = [pair.partition("=") for pair in words.split()]
            self.environment |= {key: re.sub("^/", f"{self.root}/", value) for key, _, value in pairs}
        elif name == "RUN" and "apt-get" not in words:
            self.run(words.replace("/opt/kuvasz", str(self.root / "opt" / "kuvasz")))

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def run(self, command: str) -> str:
        """Run a command in the folder where the steps are; return what it prints."""
        where = self.folder if self.folder.is_dir() else self.root
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=where, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_its_steps_install_a_kuvasz_that_starts(tmp_path: Path) -> None:
    image = Image(tmp_path)
    for name, words in steps():
        image.take(name, words)
    assert "replicate" in image.run("kuvasz --help").lower()
    where = image.run("python -c 'import kuvasz; print(kuvasz.__file__)'").strip()
    assert Path(where).is_relative_to(tmp_path / "python"), "not what lies in the folder it was built from"
    assert not (tmp_path / "opt" / "kuvasz").exists()
    # Java does not go by HOME: they may have been there, in the cache of whoever runs this.
    cached = "from kuvasz.lake.java import jars, versions; print(*map(jars.cached, versions.CORE))"
    assert "None" not in image.run(f"python -c '{cached}'")
