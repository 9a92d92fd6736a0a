"""Fixtures of the whole suite live in plug-ins, one noun per file."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import scratch

# The grammar of IRIs, which jsonschema takes if it is there and no test needs: to import it takes seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# What tests write into `tmp_path` is synced as in production: on a disk, unit tests wait as long as they compute.
# Some of it is run, which not every such folder allows.
if (memory := scratch.memory()) is not None and not os.statvfs(memory).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))

# Until all tests are collected nearly nothing that is made goes again.
gc.disable()

# First of all, so that it sees what modules of kuvasz do when they are imported.
pytest_plugins = ["tests.support.line_coverage"] if os.environ.get("COVERAGE") else []

FIXTURES = [
    "tests.support.postgres",
    "tests.support.german",
    "tests.support.lake",
    "tests.support.local_lake",
    "tests.support.stores",
    "tests.support.rest_catalog",
    "tests.support.catalogs",
    "tests.support.evolving",
    "tests.support.crash_scene",
    "tests.support.verify_bench",
    "tests.support.version_before",
]
# A conftest further down may import one before it is loaded here.
pytest.register_assert_rewrite(*FIXTURES)


def pytest_configure(config: pytest.Config) -> None:
    """Load what tests stand on, seconds of it, unless this process only hands tests out to others."""
    is_worker, only_lists = hasattr(config, "workerinput"), config.getoption("collectonly")
    hands_out = bool(config.getoption("tx", None)) and not is_worker and not only_lists
    for fixtures in [] if hands_out else FIXTURES:
        config.pluginmanager.import_plugin(fixtures)


# A run on main says whether main is right: it draws the same examples each time, and half as
# many. New ones are found at the desk.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("desk", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=10)  # `make test-unit`; see support/examples.py
if "HYPOTHESIS_PROFILE" not in os.environ:
    settings.load_profile("ci" if os.environ.get("CI") else "desk")


#: Where tests are, the dearest files first: workers that share the files then end at about the same time.
ROOMS = ("acceptance", "mutations", "integration", "hostile", "contract", "unit")

#: Tests that mostly wait for a process, and tests that keep a processor busy: neither alone uses all that is there,
#: so their files are taken in turn. Those of the first, of minutes each, are through at this share of the others.
MIXED = {"acceptance": 0.8, "integration": 1.0}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by room, two of them mixed; within one, the order stays the random one."""
    rooms: dict[str, list[Path]] = {room: [] for room in ROOMS}
    for path in dict.fromkeys(item.path for item in items):
        rooms[path.relative_to(Path(__file__).parent).parts[0]].append(path)
    places = {
        path: (0, MIXED[room] * number / len(paths)) if room in MIXED else (1 + place, 0)
        for place, (room, paths) in enumerate(rooms.items())
        for number, path in enumerate(paths)
    }
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Have the collector pass over what stays: thousands of tests, and all modules.

    All of it goes at the very end, as libraries expect that count what they made: before, pytest looks for what is
    left, twice, which takes seconds where everything is looked at.
    """
    gc.enable()
    gc.freeze()
    atexit.register(gc.unfreeze)


@pytest.fixture(autouse=True)
def logging_as_found() -> Iterator[None]:
    """Take back what a test set up for log records: the command line does so for its whole process."""
    root = logging.getLogger("kuvasz")
    handlers, level, propagate = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = handlers, propagate
    if root.level != level:  # to set it has all loggers forget what they know of theirs
        root.setLevel(level)
