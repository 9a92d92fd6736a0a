"""Looks up what is known against every locked Python package and every jar: `make audit`.

Ends with 0 if nothing is open, with 1 if a hole is open or an accepted one has expired, and with 2 if that cannot be
told: a database that is not reached says nothing about what is delivered.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from supply import accepted, jar, osv, package, pip_audit
from supply.hole import DatabaseUnreachableError
from supply.verdict import judge

FOLDER = Path(__file__).parents[1] / "requirements"

_HINT = (
    "nothing is known of the packages now: run it where that can be reached (HTTPS_PROXY names a proxy), or name a"
    " database with the same interface: make audit OSV=https://…/v1/query"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, do it, and return the exit code."""
    parser = argparse.ArgumentParser(description="known holes of what kuvasz is delivered with")
    parser.add_argument("--osv", default=osv.URL, help="where OSV, or what speaks like it, answers queries")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the locks and accepted.toml are")
    chosen = parser.parse_args(arguments)
    # The day of the reader's own zone would have entries end at different moments.
    return run(chosen.folder, chosen.osv, datetime.datetime.now(datetime.UTC).date())


def run(folder: Path, url: str, today: datetime.date) -> int:
    """Audit the locks of a folder, print what was found, and return the exit code."""
    try:
        entries = accepted.read((folder / "accepted.toml").read_text("utf-8"), today)
        packages = package.of_folder(folder)
        jars = jar.read((folder / "jars.txt").read_text("utf-8"))
    except (OSError, ValueError) as error:
        print(f"error: {folder} is not read: {error}", file=sys.stderr)
        return 2
    print(f"asking {url} for {len(packages)} Python packages and {len({one.coordinate for one in jars})} jars")
    try:
        holes = (*osv.holes_of(jars, url), *pip_audit.holes_of(packages, url))
    except DatabaseUnreachableError as error:
        print(f"error: the database of holes does not answer: {error}\nhint: {_HINT}", file=sys.stderr)
        return 2
    verdict = judge(holes, entries, today)
    print(verdict.report)
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["main", "run"]
