"""Fixtures of the whole suite live in plug-ins, one noun per file."""

from __future__ import annotations

pytest_plugins = ["tests.fix_postgres", "tests.fix_lake", "tests.fix_process", "tests.fix_stores"]
