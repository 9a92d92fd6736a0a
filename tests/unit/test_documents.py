"""What the documents say of modules, tests, layers and each other is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import outward_links, rooms

pytestmark = pytest.mark.text

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
OF_THE_CODE = [
    ROOT / "ARCHITECTURE.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("internals", "decisions", "limits")),
]

#: `lake/table/past`, `unit/state/test_progress.py`, `integration/test_evolve*.py`, `verify/read_only.mend`.
_PATH = re.compile(r"([a-z_]+(?:/[a-z_*]+)+(?:\.(?:py|md))?)(?:\.([A-Za-z_]+))?")


def _finds(path: str, name: str | None) -> bool:
    files = [
        file
        for root in (ROOT / "kuvasz", ROOT / "tests", ROOT)
        for suffix in ("", ".py")
        for file in root.glob(path + suffix)
    ]
    return any(
        name is None or (file.is_file() and re.search(rf"\b{name}\b", file.read_text("utf-8"))) for file in files
    )


@pytest.mark.parametrize("page", OF_THE_CODE, ids=lambda page: page.stem)
def test_every_path_in_a_document_exists(page: Path) -> None:
    words = re.findall(r"`([^`\s]+)`", page.read_text("utf-8"))
    paths = [match for match in map(_PATH.fullmatch, words) if match]
    assert [match[0] for match in paths if not _finds(match[1], match[2])] == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} of {page.name}"
        assert not anchor or anchor in _anchors(target), f"{link} of {page.name}"


def test_a_commit_is_looked_at_as_make_check_does() -> None:
    """What `pre-commit` runs is what the Makefile runs, but that it mends what it can."""
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe
    checks = recipe[1].replace("$(PYTHON)", ".venv/bin/python").replace(" --check", "").replace(" .\n", "\n")
    hooks = re.findall(r"entry: ([^,]+),", (ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [hook.removesuffix(" --fix") for hook in hooks] == [line.strip() for line in checks.splitlines()]
    assert "`pre-commit install`" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["Makefile", "Dockerfile", ".ci/run"])
def test_scripts_that_are_called_are_there(page: str) -> None:
    called = set(re.findall(r"scripts/[\w.-]+", (ROOT / page).read_text("utf-8")))
    assert {name for name in called if not (ROOT / name).is_file()} == set()


@pytest.mark.parametrize("package", ["kuvasz", "kuvasz.lake", "kuvasz.source", "kuvasz.sync"])
def test_the_page_shows_the_floors_that_imports_are_held_to(package: str) -> None:
    assert rooms.table(package) in rooms.PAGE.read_text("utf-8"), "python -m tests.support.rooms writes them"


def test_every_room_says_what_lives_there() -> None:
    modules = {module for package in ("kuvasz", "kuvasz.lake", "kuvasz.source", "kuvasz.sync")
               for floor in rooms.floors(package) for module in floor}  # fmt: skip
    assert [module for module in sorted(modules) if not rooms.first_line(module)] == []


def test_a_table_that_is_old_is_written_anew() -> None:
    page = "before\n<!-- floors of kuvasz.sync: old -->\nanything\n<!-- end -->\nafter"
    assert rooms.with_tables(page) == f"before\n{rooms.table('kuvasz.sync')}\nafter"


@pytest.mark.parametrize("page", outward_links.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_that_lead_elsewhere_are_encrypted_and_defined(page: Path) -> None:
    assert outward_links.strays(page) == set()
    assert [
        link for link in outward_links.links(page) if not re.fullmatch(r"https://[\w.-]+\.[a-z]+(/\S*)?", link)
    ] == []


def test_what_is_said_of_other_tools_has_sources_that_stay_as_they_are() -> None:
    """A branch moves on; a commit says tomorrow what it says today."""
    found = outward_links.links(ROOT / "docs" / "comparison.md")
    assert len(found) > 30
    assert [link for link in found if not re.search(r"/(?:blob|tree)/[0-9a-f]{40}(?:/|$)", link)] == []
