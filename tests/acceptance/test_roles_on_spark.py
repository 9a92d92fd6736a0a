"""One process that reads and two that apply, each with an application of its own on a standalone Spark cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.apart import Roles
from tests.support.load import Load
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.stores import Cluster, StoreProcess, spark_cluster
from tests.support.waiting import wait_until

# Up to nine JVMs on what may be two busy cores.
pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

#: Of the executors of one application that are killed, one after another.
KILLS = 2


@pytest.fixture
def spark_with_room() -> Iterator[Cluster]:
    """A cluster of this test alone, which kills its workers; one of them has room for all executors."""
    with spark_cluster(cores=2) as made:
        yield made


def executor(spark: Cluster, application: str) -> psutil.Process:
    """Wait until an application has an executor, and return its process."""
    wait_until(lambda: spark.executor_processes(application), f"{application} has an executor")
    return spark.executor_processes(application)[0]


def end(process: psutil.Process) -> None:
    """Kill a process, and wait until it is gone."""
    process.kill()
    psutil.wait_procs([process], timeout=30)


def committed_by(process: Process, more: int = 5) -> None:
    """Wait for so many more commits of a process."""
    process.wait_event("committed", len(process.found("committed")) + more)


def test_roles_on_a_spark_cluster_outlive_its_executors_and_workers(
    two_sources: dict[str, Database], coordinator: Database, new_store_process: Callable[..., StoreProcess],
    spark_with_room: Cluster, spark_session: object,
) -> None:  # fmt: skip
    spark = spark_with_room
    roles = Roles(two_sources, coordinator, new_store_process, spark=spark.section(**{"spark.cores.max": "1"}))
    roles.start()
    (applied_by,) = spark.applications()
    assert not psutil.Process(roles.read.pid).children(recursive=True), "the one that reads has no JVM"
    roles.all.start()
    roles.all.wait_event("standing_by")
    (stands_by,) = spark.applications() - {applied_by}
    with Load(roles.sources["eu"], 1), Load(roles.sources["us"], 2):
        roles.committed()
        for _ in range(KILLS):
            end(executor(spark, applied_by))
            roles.committed()
        lost = executor(spark, applied_by)
        end(spark.worker_process(lost))
        wait_until(lambda: not lost.is_running() or lost.status() == psutil.STATUS_ZOMBIE, "it ends with its worker")
        roles.committed()
        assert not roles.apply.found("copied")[roles.copies :], "nothing is copied again"
        roles.read.terminate()
        roles.apply.terminate()
        roles.all.wait_event("lease_taken")
        committed_by(roles.all)
        end(executor(spark, stands_by))
        committed_by(roles.all)
    roles.wait_applied(roles.all)
    assert not roles.all.found("copied"), "nothing is copied again"
    roles.all.terminate()
    roles.assert_equal(spark_session)
