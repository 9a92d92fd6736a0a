"""The site has every page, shows it as a Git host does, and loads nothing from elsewhere."""

from __future__ import annotations

import collections
import html.parser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from ruamel.yaml import YAML

from tests.support import site

ROOT = Path(__file__).parents[2]
_LOADED = re.compile(r"<(?!a\b)[a-z]+ [^>]*\b(?:src|href|srcset|action)=[\"']?([^\"' >]+)")
PAGES = sorted([*site.PAGES.values(), *(file.name for file in (ROOT / "docs").glob("*.md"))])


def nav(part: Any) -> list[str]:
    """Return the pages of a part of the navigation."""
    if isinstance(part, str):
        return [part]
    return [page for one in (part.values() if isinstance(part, dict) else part) for page in nav(one)]


@pytest.fixture(scope="module")
def settings() -> dict:
    return YAML(typ="rt", pure=True).load(ROOT / "mkdocs.yml")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("no mkdocs here: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_navigation_once(settings: dict) -> None:
    assert sorted(nav(settings["nav"])) == PAGES


def test_the_navigation_has_four_kinds(settings: dict) -> None:
    assert [kind for part in settings["nav"] if isinstance(part, dict) for kind in part] == [
        "Learn", "Do", "Look up", "Understand"]  # fmt: skip


def test_the_first_page_leads_to_every_other(settings: dict) -> None:
    text = site.with_links((ROOT / "docs" / "index.md").read_text("utf-8"), "index.md")
    assert sorted(set(re.findall(r"\]\(([^)#]+)", text))) == [page for page in PAGES if page != "index.md"]
    kinds = {kind: nav(pages) for part in settings["nav"] if isinstance(part, dict) for kind, pages in part.items()}
    for kind, pages in kinds.items():
        _, begin, rest = text.partition(f"**{kind}.**")
        assert begin
        assert set(re.findall(r"\]\(([^)#]+)", rest.partition("**")[0])) == set(pages)


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("operating.md", "[a](tables.md#b) [c](#d)", "[a](tables.md#b) [c](#d)"),
        ("operating.md", "[a](../CHANGELOG.md#b)", "[a](changelog.md#b)"),
        ("first-hour.md", "[docs/a.md](docs/install.md#b)", "[docs/a.md](install.md#b)"),
        ("benchmarks.md", "[a](../docs/limits.md)", "[a](limits.md)"),
        ("install.md", "[a](../deploy/kuvasz.service)", "[a](files/deploy/kuvasz.service)"),
        ("platform.md", "[`deploy`](../deploy/grafana)", "`deploy`"),
        ("benchmarks.md", "[the profiles](profiles/README.md)", "the profiles"),
        ("howto.md", "`[a](../x)`\n```\n[a](../x)\n```\n[a](https://b.c)", "`[a](../x)`\n```\n[a](../x)\n```\n[a](https://b.c)"),
    ],
)  # fmt: skip
def test_links_lead_within_the_site(page: str, text: str, expected: str) -> None:
    assert site.with_links(text, page) == expected


class _Elements(html.parser.HTMLParser):
    """Counts what a page is built of."""

    COUNTED = frozenset({"h1", "h2", "h3", "ul", "ol", "li", "table", "tr", "th", "td", "pre", "blockquote", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: collections.Counter[str] = collections.Counter()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += tag in self.COUNTED


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_built_of_what_a_git_host_shows(page: str, built: Path) -> None:
    """MkDocs wants four blanks before what belongs to a point of a list, and an empty line before a list."""
    shown = (built / page.removesuffix(".md").removesuffix("index") / "index.html").read_text("utf-8")
    article = shown[shown.index("<article") : shown.index("</article>")]
    text = MarkdownIt("commonmark").enable("table").render((ROOT / site.source_of(page)).read_text("utf-8"))
    assert +_Elements(article).counts == +_Elements(text).counts


@pytest.mark.process
def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        tags = re.findall(
            r"<(?!a\b)[a-z]+ [^>]*\b(?:src|href|srcset|action)=[\"']?([^\"' >]+)", page.read_text("utf-8")
        )
        assert tags
        assert [link for link in tags if re.match(r"(?:[a-z]+:)?//", link)] == [], page
    for sheet in built.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:[a-z]+:)?//", sheet.read_text("utf-8")) == [], sheet
