"""The pages of the documentation's site that do not lie in docs/, and where links from page to page lead there.

MkDocs reads docs/ alone. This is its hook (`hooks` of mkdocs.yml): it adds pages of the root, and has links to other
files of the repository lead to copies of them, so that one text does for the site and for a Git host.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]

#: Path in the repository -> page of the site.
PAGES = {
    "README.md": "first-hour.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
_REPOSITORY = {page: path for path, page in PAGES.items()}

#: Code comes first, so that what looks like a link in it is none.
_CODE_OR_LINK = re.compile(
    r"^ *```.*?^ *```"  # a fence
    r"|`[^`\n]*`(?!\])"
    r"|\[((?:[^\[\]]|`[^`]*`)*)\]\(([^)\s]+)\)",
    re.DOTALL | re.MULTILINE,
)


def source_of(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    return _REPOSITORY.get(page, f"docs/{page}")


def place_of(path: str) -> str | None:
    """Return where a path of the repository is in the site; None if it is not: folders, other pages."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}" if (ROOT / path).is_file() and not path.endswith(".md") else None


def with_links(text: str, page: str) -> str:
    """Return a page's text with its links as they lead within the site."""

    def replaced(match: re.Match[str]) -> str:
        told, link = match[1], match[2]
        if link is None or "://" in link or link.startswith(("#", "mailto:")):
            return match[0]
        path, hash_, anchor = link.partition("#")
        place = place_of(posixpath.normpath(posixpath.join(posixpath.dirname(source_of(page)), path)))
        return told if place is None else f"[{told}]({place}{hash_}{anchor})"

    return _CODE_OR_LINK.sub(replaced, text)


def linked_files() -> set[str]:
    """Return the paths of all files that pages of the site link to and that are no pages themselves."""
    pages = [*PAGES.values(), *(file.name for file in (ROOT / "docs").glob("*.md"))]
    texts = [with_links((ROOT / source_of(page)).read_text("utf-8"), page) for page in pages]
    return {path for text in texts for path in re.findall(r"\]\(files/([^)#\s]+)", text)}


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages of the root and the files that pages link to."""
    from mkdocs.structure.files import File

    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text("utf-8")))
    for path in sorted(linked_files()):
        files.append(File.generated(config, f"files/{path}", content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have a page's links lead within the site."""
    return with_links(markdown, page.file.src_uri)
