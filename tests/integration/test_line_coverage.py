"""A run of tests ends with the lines of each package that ran, gathered from all processes that share them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# Slow: each run of `make test` ends so; here it is looked at.
@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_ends_with_what_ran(workers: int) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers), "tests/unit/test_backoff.py"],
        cwd=ROOT, env={**os.environ, "COVERAGE": "1"}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    found = re.findall(r"^(\w[\w ]*?) +(\d+) of +(\d+) +\d+%$", run.stdout, re.MULTILINE)
    totals = {package: (int(ran), int(lines)) for package, ran, lines in found}
    assert totals.keys() >= {"its own modules", "decode", "lake", "sync", "kuvasz"}
    assert 0 < totals["its own modules"][0] < totals["its own modules"][1]
    assert totals.pop("kuvasz") == tuple(map(sum, zip(*totals.values(), strict=True)))
