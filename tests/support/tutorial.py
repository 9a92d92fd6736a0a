"""A tutorial of the documentation, carried out as it is printed: shell, SQL, files, programs, and what they print.

A paragraph that names a database (`garden`:) or a file (`map.yaml`:) in its last backticks says where the SQL behind
it goes, or what the YAML is called. A text behind something is what that prints, where `…` stands for anything.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from markdown_it import MarkdownIt

from kuvasz.demo.postgres import binaries

ROOT = Path(__file__).parents[2]

_END = "kuvasz-tutorial-end"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TutorialStep:
    """Something that is shown."""

    language: str
    text: str
    about: str  #: the last thing that the paragraph before names


def steps(page: Path) -> list[TutorialStep]:
    """Return what a page shows, in its order."""
    found, about = [], ""
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        if token.type == "inline":
            about = next(iter(re.findall(r"`([^`]+)`", token.content)[::-1]), "")
        elif token.type == "fence":
            found.append(TutorialStep(language=token.info, text=token.content, about=about))
    return found


class Tutorial:
    """A reader who types all of it into one shell.

    Args:
        folder: Where he begins.
        environment: What is otherwise on his machine.
        instead: What the page says -> what it is here.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], instead: Mapping[str, str]) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name, command in (("kuvasz", [sys.executable, "-m", "kuvasz"]), ("python", [sys.executable])):
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}:{binaries(18)}:{os.environ['PATH']}"
        self._instead = instead
        self._shell = subprocess.Popen(
            ["bash"], cwd=folder, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def carry_out(self, page: Path) -> None:
        """Do all that a page shows; what prints something else fails."""
        told = ""
        for step in steps(page):
            if step.language == "text":
                expected = ".*".join(map(re.escape, " ".join(step.text.split()).split("…")))
                assert re.search(expected, " ".join(told.split())), f"{step.text}\nis not what it prints:\n{told}"
            else:
                told = self._typed(self._command(step))

    def end(self) -> None:
        """Close the shell, and end what still runs in it."""
        self._typed("kill $(jobs -p) 2> /dev/null; wait")
        self._shell.kill()
        self._shell.wait()

    def _command(self, step: TutorialStep) -> str:
        text = step.text
        for said, here in self._instead.items():
            text = text.replace(said, here)
        match step.language:
            case "sh":
                return text
            case "sql":
                return f"psql --quiet --set ON_ERROR_STOP=1 {step.about} <<'THE END'\n{text}THE END\n"
            case "python":
                return f"python - <<'THE END'\n{text}THE END\n"
            case "yaml":
                return f"cat > {step.about} <<'THE END'\n{text}THE END\n"
        raise AssertionError(step.language)

    def _typed(self, text: str) -> str:
        """Type something in, and return what is printed until it has ended."""
        stdin, stdout = self._shell.stdin, self._shell.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{text}\necho {_END} $?\n")
        stdin.flush()
        lines: list[str] = []
        for line in stdout:
            if line.startswith(_END):
                break
            lines.append(line)
        told = "".join(lines)
        # `plan` and `drift` end with 4 where there is something to be said.
        assert line.split()[1:] in (["0"], ["4"]), f"{text}\nended with {line}{told}"
        return told


__all__ = ["Tutorial", "TutorialStep", "steps"]
