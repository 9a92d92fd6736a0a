"""Without any one of the durable facts a difference is seen: nothing is stored that no test needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mutations import MISHAPS, MUTATIONS

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

#: Plays all mishaps in one scene.
SCENE = "tests/acceptance/test_accounted_for.py::test_a_mishap_leaves_no_difference_that_is_not_told"


def run_without(names: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests with facts left out; several names stand between commas."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "tests.support.mutations",
               "-p", "no:cacheprovider", *arguments]  # fmt: skip
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | {"MUTATION": names}, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fact_that_is_not_written_is_missed(name: str) -> None:
    done = run_without(name, "-x", *MUTATIONS[name].tests)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, (
        f"nobody missed it:\n{done.stdout[-2000:]}{done.stderr[-500:]}"
    )


@pytest.mark.timeout(1800)
def test_a_mishap_ends_otherwise_without_its_fact() -> None:
    """All of them in one scene: what one misses must not show in another's table."""
    done = run_without(",".join(MISHAPS.values()), SCENE)
    failed = set(re.findall(rf"^FAILED {re.escape(SCENE)}\[(.+?)\]", done.stdout, re.MULTILINE))
    assert failed == set(MISHAPS), f"{done.stdout[-6000:]}{done.stderr[-500:]}"
