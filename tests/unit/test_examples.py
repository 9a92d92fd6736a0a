"""Every command and every map that the documents show is one that kuvasz takes."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from kuvasz.config import load
from kuvasz.config.file import read
from kuvasz.config.model import Config
from kuvasz.config.written.map_file import MapFile
from kuvasz.errors import ConfigError
from tests.support.commands import arguments, inline, is_taken

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: What examples are written in. `yml` is for files that are no map: Prometheus' own.
LANGUAGES = {"sh", "sql", "python", "yaml", "yml", "json", "text"}

_COMMAND = re.compile(r"\s*(?:kuvasz|/opt/kuvasz/bin/kuvasz)\b")

#: What makes a map of a section alone, and of tables alone.
_DATABASES = "databases: [{database: d, urls: [{url: 'postgresql://h/d'}], tables: {t: }}]\n"
_TABLES = """\
pipeline: {mask_secret: geheim-7-geheim-7}
databases:
- database: d
  urls: [{url: 'postgresql://h/d'}]
  tables:
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the examples of a page with their languages; indented ones have none."""
    tokens = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    return [(one.info, one.content) for one in tokens if one.type in {"fence", "code_block"}]


def fenced(page: Path, language: str) -> list[str]:
    """Return what a page shows in a language."""
    return [text for shown, text in blocks(page) if shown == language]


def commands(page: Path) -> list[list[str]]:
    """Return the arguments of every command that a page names, in its shell examples and in backticks."""
    shell = [line for text in fenced(page, "sh") for line in text.replace("\\\n", " ").splitlines()]
    lines = [line.partition(" #")[0] for line in shell if _COMMAND.match(line)]
    return [*inline(page.read_text("utf-8")), *arguments(lines)]


def as_map(text: str) -> str:
    """Return a whole map of what an example shows: a map, some of its sections, or some tables."""
    if "databases:" in text:
        return text
    names = set(re.findall(r"^([\w.]+):", text, re.MULTILINE))
    return text + _DATABASES if names <= Config.model_fields.keys() else _TABLES + textwrap.indent(text, "    ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_says_its_language(page: Path) -> None:
    assert [text for language, text in blocks(page) if language not in LANGUAGES] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_program_is_one(page: Path) -> None:
    for text in fenced(page, "python"):
        ast.parse(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_document_is_one(page: Path) -> None:
    for text in fenced(page, "json"):
        json.loads(text)


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
    secret.write_text("geheim-8-geheim-8")
    for number, text in enumerate(fenced(page, "yaml")):
        if re.search(r"^kind:", text, re.MULTILINE):  # for Kubernetes
            continue
        file = tmp_path / f"map{number}.yaml"
        file.write_text(re.sub(r"\$\{file:[^}]*\}", f"${{file:{secret}}}", as_map(text)))
        names = load.template_names(read(MapFile(file)).value)
        environ = {name: f"postgresql://h/{name}" if name.endswith("_URL") else "geheim-7-geheim-7" for name in names}
        assert load.load(file, environ).config.databases


def test_a_wrong_example_is_seen(tmp_path: Path) -> None:
    for text in ("lake: {namspace: shop}\n", "orders: {typ: clone}\n", _DATABASES.replace("tables", "table")):
        (tmp_path / "map.yaml").write_text(as_map(text))
        with pytest.raises(ConfigError, match="unknown key"):
            load.load(tmp_path / "map.yaml", {})
