"""Which programs are tried, and what came of them."""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import pytest


def try_all(run: Callable[[int], None]) -> None:
    """Run the programs that ``NEGLECT`` names, or new ones for as many minutes; fail with those that failed."""
    tried, failed = 0, []
    for seed in wanted(os.environ["NEGLECT"]):
        tried += 1
        began = time.monotonic()
        try:
            run(seed)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (the others are tried all the same)
            failed.append(seed)
            traceback.print_exception(error, file=sys.stdout)
        print(f"seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{tried} programs, {len(failed)} failed: {failed}")
    assert not failed


def wanted(what: str) -> Iterator[int]:
    """Return the seeds to try: those named, or new ones for some minutes."""
    if what.startswith("seed="):
        yield from map(int, what.removeprefix("seed=").split(","))
        return
    end = time.monotonic() + float(what) * 60
    while time.monotonic() < end:
        yield random.SystemRandom().randint(1, 10**6)
