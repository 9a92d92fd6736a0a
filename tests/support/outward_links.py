"""The links of the documents that lead elsewhere. Tests fetch none of them.

`python -m tests.support.outward_links` prints them with the pages that have them, for who wants to look whether they
still lead somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md"]

_CODE = re.compile(r"```.*?```|`[^`\n]*`(?!\])", re.DOTALL)
_INLINE = re.compile(r"\]\((\w+://[^)\s]+)\)")
_DEFINED = re.compile(r"^\[([^\]]+)\]: +(\S+)$", re.MULTILINE)
_REFERRED = re.compile(r"\]\[([^\]]+)\]")


def links(page: Path) -> set[str]:
    """Return where a page leads outside."""
    text = _CODE.sub("", page.read_text("utf-8"))
    return {*_INLINE.findall(text), *(link for _, link in _DEFINED.findall(text))}


def strays(page: Path) -> set[str]:
    """Return the names of links that a page uses and does not define, or the reverse."""
    text = _CODE.sub("", page.read_text("utf-8"))
    return set(_REFERRED.findall(text)) ^ {name for name, _ in _DEFINED.findall(text)}


def listed(pages: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each link with its pages."""
    found: dict[str, list[str]] = {}
    for page in pages:
        for link in links(page):
            found.setdefault(link, []).append(str(page.relative_to(ROOT)))
    yield from (f"{link}\t{', '.join(names)}" for link, names in sorted(found.items()))


if __name__ == "__main__":
    print(*listed(PAGES), sep="\n")
