"""Without any one of the durable facts a difference is seen: nothing is stored that no test needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mutations import MUTATIONS

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fact_that_is_not_written_is_missed(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "tests.support.mutations",
               "-p", "no:cacheprovider", "-m", "not slow", *MUTATIONS[name].tests]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"MUTATION": name}, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, (
        f"nobody missed it:\n{done.stdout[-2000:]}{done.stderr[-500:]}"
    )
