"""Maps for tests: written to a file called map.yaml, loaded, and what is said when they are refused."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from kuvasz.config import load
from kuvasz.errors import ConfigError

HINT = "docs/configuration.md explains every key; `kuvasz config --schema` prints them for editors"

SHOP = """\
databases:
- database: shop
  urls:
  - {url: "postgresql://repl:geheim@eu1/shop", sid: eu}
  tables:
    orders:
"""


def loaded(
    folder: Path,
    text: str = SHOP,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> load.Loaded:
    """Load a map as it would be loaded in its own folder."""
    (folder / "map.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return load.load(Path("map.yaml"), environ or {}, flags)
    finally:
        os.chdir(before)


def faults(
    folder: Path, text: str, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> list[str]:
    """Return the lines of the refusal, without the hint; none if the map is right."""
    try:
        loaded(folder, text, environ, flags)
    except ConfigError as error:
        refused = error
    else:
        return []
    assert (refused.exit_code, refused.hint) == (2, HINT)
    return refused.message.split("\n")


def refusal(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the one line of the refusal."""
    lines = faults(folder, text, environ)
    if len(lines) != 1:
        pytest.fail(f"not one fault: {lines}")
    return lines[0]
