"""Every command and every map that the documents show is one that kuvasz takes."""

from __future__ import annotations

import ast
import functools
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

pytestmark = pytest.mark.text

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: What examples are written in. `yml` is for files that are no map: Prometheus' own.
LANGUAGES = {"sh", "sql", "python", "yaml", "yml", "json", "text"}

_COMMAND = re.compile(r"\s*(?:kuvasz|/opt/kuvasz/bin/kuvasz)\b")

#: Which test does what examples of a page show, other than commands of kuvasz and maps: page, and how its examples
#: begin -> the test, and what it does it by.
RUN = {
    ("README.md", "CREATE ROLE kuvasz|CREATE PUBLICATION|from pyiceberg"): (
        "acceptance/test_first_hour.py",
        'printed("sql")[:3]',
    ),
    ("README.md", "GRANT shop_owner"): ("integration/test_printed_sql.py", '"README.md", "howto.md", "security.md"'),
    ("README.md", "export KUVASZ_CONFIG"): ("acceptance/test_first_hour.py", '"KUVASZ_CONFIG"'),
    ("about-the-lake.md", ""): ("integration/test_about.py", "about-the-lake.md"),
    ("configuration.md", "config/map.yaml:5:3"): ("unit/config/test_translate.py", "did you mean 'commit_interval'?"),
    ("destinations.md", "import asyncio"): ("integration/test_destinations.py", "destinations.md"),
    ("howto.md", "export EU_PW"): ("integration/test_printed_sql.py", '"howto.md", "export EU_PW'),
    ("howto.md", "GRANT shop_owner"): ("integration/test_printed_sql.py", '"README.md", "howto.md", "security.md"'),
    ("howto.md", "from kuvasz import Replicator"): ("acceptance/test_library.py", '"howto.md"'),
    ("howto.md", "import dagster|from datetime import"): ("acceptance/test_tasks.py", '"A task of Dagster"'),
    ("http.md", "curl"): ("unit/test_printed_requests.py", "http.md"),
    ("install.md", "sudo useradd"): ("unit/deploy/test_printed_steps.py", '"sudo useradd"'),
    ("install.md", "export KUVASZ_CONFIG"): ("acceptance/test_first_hour.py", '"KUVASZ_CONFIG"'),
    ("lakes.md", "CREATE ROLE iceberg"): ("acceptance/test_first_hour.py", '"lakes.md"'),
    ("maintenance.md", "SELECT"): ("contract/test_maintenance.py", "VERSION AS OF {version}"),
    ("migrating.md", "SELECT slot_name|kuvasz init"): ("integration/test_printed_sql.py", '"migrating.md"'),
    ("operating.md", "curl|ask()"): ("unit/test_printed_requests.py", "operating.md"),
    ("operating.md", "/var/log/kuvasz"): ("unit/deploy/test_printed_steps.py", '"/var/log/kuvasz/kuvasz.log {"'),
    ("operating.md", "jq -j"): ("integration/test_erase.py", r"jq -j \.sha256"),
    ("operating.md", "SELECT pg_drop"): ("integration/test_printed_sql.py", '"operating.md"'),
    ("platform.md", "rule_files"): ("unit/deploy/test_printed_steps.py", '"rule_files:"'),
    ("platform.md", "helm install"): ("unit/deploy/test_printed_steps.py", 'commands("platform", "helm")'),
    ("providers.md", "GRANT"): ("integration/test_providers.py", "providers.md"),
    ("reading.md", "from|def load_together"): ("acceptance/test_first_hour.py", '"reading.md"'),
    ("reading.md", "$ kuvasz asof"): ("integration/test_asof.py", 'table["queries"]'),
    ("reading.md", "SELECT max_by"): ("integration/test_asof.py", "How far a snapshot is"),
    ("reading.md", "$ kuvasz cut"): ("integration/test_cuts.py", "metadata.refs[tag].snapshot_id"),
    ("reading.md", "$ kuvasz trace"): ("integration/test_trace.py", "test_rows_are_traced_through_changes"),
    ("security.md", "CREATE ROLE kuvasz"): ("hostile/test_least_rights.py", "security.md"),
    ("security.md", "GRANT shop_owner"): (
        "integration/test_printed_sql.py",
        '"README.md", "howto.md", "security.md"',
    ),
    ("tables.md", "CREATE TABLE prices|SELECT id, price"): ("integration/test_docs.py", "tables.md"),
    ("tables.md", "CREATE PUBLICATION"): ("integration/test_printed_sql.py", '"tables.md"'),
    ("tutorial-database.md", ""): ("acceptance/test_tutorials.py", 'read("database")'),
    ("tutorial-object-store.md", ""): ("acceptance/test_tutorials.py", 'read("object-store"'),
    ("tutorial-tenants.md", ""): ("acceptance/test_tutorials.py", 'read("tenants")'),
}

#: The same of those that no test does -> why not.
NOT_RUN = {
    ("README.md", "source A|make run"): "a drawing; the demo, which takes minutes and is tried part by part",
    ("cluster.md", ""): "drawings",
    ("destinations.md", "python -m pytest"): "the tests are run anyway",
    ("howto.md", "postgresql://kuvasz:${exec"): "wants Amazon's program; a command that prints a token is tried",
    ("install.md", "docker build|sudo apt install"): (
        "wants Docker, or a machine that may be changed; what pip is given is tried with the steps of the image"
    ),
    ("platform.md", "docker compose|kubectl"): "wants Docker, or a cluster",
    ("reading.md", "INSTALL iceberg"): "DuckDB's extension comes from elsewhere",
    ("security.md", "hostssl"): "a line of a server's own file",
}

#: What makes a map of a section alone, and of tables alone.
_DATABASES = "databases: [{database: d, urls: [{url: 'postgresql://h/d'}], tables: {t: }}]\n"
_TABLES = """\
pipeline: {mask_secret: geheim-7-geheim-7}
databases:
- database: d
  urls: [{url: 'postgresql://h/d'}]
  tables:
"""


@functools.cache
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


def of_others(page: Path) -> list[str]:
    """Return the first lines of a page's examples that are more than a map, a document, or commands of kuvasz."""
    shown = [text.strip() for language, text in blocks(page) if language not in {"yaml", "json"} and text.strip()]
    lines = [[line for line in text.replace("\\\n", " ").splitlines() if line.strip()] for text in shown]
    return [one[0] for one in lines if not all(_COMMAND.match(line) or line[0] == "#" for line in one)]


def which(page: str, first: str) -> list[tuple[str, str]]:
    """Return the entries of `RUN` and `NOT_RUN` that mean an example."""
    known = [key for key in (*RUN, *NOT_RUN) if key[0] == page]
    return [key for key in known if any(first.startswith(begin) for begin in key[1].split("|"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_is_done_by_a_test_or_says_why_not(page: Path) -> None:
    found = of_others(page)
    assert [first for first in found if not which(page.name, first)] == [], "which test does it?"
    used = {key for first in found for key in which(page.name, first)}
    assert {key for key in (*RUN, *NOT_RUN) if key[0] == page.name} - used == set(), "they are gone"


@pytest.mark.parametrize(("file", "done"), sorted(set(RUN.values())))
def test_a_test_does_what_it_is_said_to(file: str, done: str) -> None:
    assert done in (ROOT / "tests" / file).read_text("utf-8")


def test_every_option_that_is_shown_is_given_by_a_test() -> None:
    """On a command line: whoever calls a verb's function has not shown that the option gets there."""
    here = {"test_examples.py", "test_hints.py", "commands.py", "command_list.py"}
    tests = [file for file in (ROOT / "tests").rglob("*.py") if file.name not in here]
    text = "\n".join(file.read_text("utf-8") for file in tests)
    given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w-])", text))
    shown = {word.partition("=")[0] for page in PAGES for one in commands(page) for word in one if word[:2] == "--"}
    assert shown - given == set()


def test_a_wrong_example_is_seen(tmp_path: Path) -> None:
    for text in ("lake: {namspace: shop}\n", "orders: {typ: clone}\n", _DATABASES.replace("tables", "table")):
        (tmp_path / "map.yaml").write_text(as_map(text))
        with pytest.raises(ConfigError, match="unknown key"):
            load.load(tmp_path / "map.yaml", {})
