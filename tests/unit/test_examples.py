"""Every command and every map that the documents show is one that kuvasz takes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from kuvasz.config import load
from kuvasz.config.file import read
from tests.support.commands import arguments, inline, is_taken

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCES = re.compile(r"^( *)```(\w+)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)

_COMMAND = re.compile(r"\s*(?:kuvasz|/opt/kuvasz/bin/kuvasz)\b")

#: What makes a map of a section alone.
_DATABASES = "databases: [{database: d, urls: [{url: 'postgresql://h/d'}], tables: {t: }}]\n"


def fenced(page: Path, language: str) -> list[str]:
    """Return what a page shows in a language."""
    return [textwrap.dedent(text) for _, shown, text in FENCES.findall(page.read_text("utf-8")) if shown == language]


def commands(page: Path) -> list[list[str]]:
    """Return the arguments of every command that a page names, in its shell examples and in backticks."""
    shell = [line for text in fenced(page, "sh") for line in text.replace("\\\n", " ").splitlines()]
    lines = [line.partition(" #")[0] for line in shell if _COMMAND.match(line)]
    return [*inline(page.read_text("utf-8")), *arguments(lines)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_one(page: Path) -> None:
    assert [arguments for arguments in commands(page) if not is_taken(arguments)] == []


def test_commands_are_found_and_wrong_ones_seen() -> None:
    assert ["check"] in commands(ROOT / "README.md")
    assert len([one for page in PAGES for one in commands(page)]) > 50
    assert not is_taken(["retry", "--tabel", "items"])
    assert not is_taken(["nonsense"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_map_is_loaded(page: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("geheim")
    for number, text in enumerate(fenced(page, "yaml")):
        if "kind:" in text:  # for Kubernetes
            continue
        rest = "" if "databases:" in text else _DATABASES
        file = tmp_path / f"map{number}.yaml"
        file.write_text(re.sub(r"\$\{file:[^}]*\}", f"${{file:{secret}}}", text) + rest)
        environ = dict.fromkeys(load.template_names(read(file).value), "geheim-7")
        assert load.load(file, environ).config.databases
