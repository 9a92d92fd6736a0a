"""Two processes with one map: one reads the sources and stages, the other one applies; each dies at any time."""

from __future__ import annotations

import json
from collections.abc import Callable

import psutil
import pytest

from tests.support.apart import Roles
from tests.support.load import Load
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.stores import S3

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

#: Where the log is in a store, half of it are pages of PyArrow's libraries, and an upload may be on its way.
MOST_MB = 150


@pytest.fixture
def roles(two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]) -> Roles:
    return Roles(two_sources, coordinator, new_process)


def memory_mb(reader: psutil.Process) -> int:
    """Return what a process has in memory, in MB, of its own and of the files that it runs."""
    found = reader.memory_full_info()
    size = found.rss >> 20
    print(f"the reader takes {size} MB, {found.uss >> 20} of them its own, {reader.num_threads()} threads")
    return size


def test_one_reads_and_the_other_one_applies_and_each_is_killed(roles: Roles, spark_session: object) -> None:
    roles.start()
    with Load(roles.sources["eu"], 1), Load(roles.sources["us"], 2):
        roles.committed()
        nodes = json.loads(roles.read.run("cluster", "nodes", "--json").stdout)["nodes"]
        assert {(node["pid"], node["role"], node["replicates"]) for node in nodes} == {
            (roles.read.pid, "read", True), (roles.apply.pid, "apply", True),
        }  # fmt: skip
        roles.read.kill()
        roles.start_read()
        roles.committed()
        # Nobody applies: sources are staged and confirmed all the same.
        roles.apply.kill()
        roles.read.wait_confirmed(*roles.sources.values())
        assert list(roles.log.iterdir())
        roles.apply.start()
        roles.committed()
        reader = psutil.Process(roles.read.pid)
        memory = memory_mb(reader)
        assert not reader.children(recursive=True), "there is no JVM"
        roles.read.kill()
        roles.apply.kill()
        roles.apply.start()
        roles.start_read()
        roles.committed()
    roles.wait_applied()
    assert not roles.apply.found("copied"), "nothing is copied again"
    roles.apply.wait_until(lambda: not list(roles.log.iterdir()), "no object is left")
    roles.read.terminate()
    roles.apply.terminate()
    roles.assert_equal(spark_session)
    assert memory <= MOST_MB


def test_one_that_reads_into_a_store_is_as_small(
    two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process], s3: S3,
    spark_session: object,
) -> None:  # fmt: skip
    roles = Roles(two_sources, coordinator, new_process, s3)
    roles.start()
    reader = psutil.Process(roles.read.pid)
    with Load(roles.sources["eu"], 1), Load(roles.sources["us"], 2):
        roles.committed(20)
        memory = memory_mb(reader)
    roles.wait_applied()
    roles.wait_empty()
    roles.read.terminate()
    roles.apply.terminate()
    roles.assert_equal(spark_session)
    assert memory <= MOST_MB
