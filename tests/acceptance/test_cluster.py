"""kuvasz on a Spark cluster of two workers: nothing assumes that the executors share the driver's process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.lake import group
from tests.support.oracle import assert_equal, source_rows
from tests.support.postgres import Database
from tests.support.stores import S3, Cluster, StoreProcess

# Seven JVMs on what may be two busy cores: the default limit of a test is too near.
pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ITEMS = "CREATE TABLE {} (id bigint PRIMARY KEY, n int, name text, price numeric(12,2), at timestamptz DEFAULT now())"
FILL = "INSERT INTO {} SELECT i, i % 7, 'item ' || i, i * 1.25 FROM generate_series(1, {}) i"


@pytest.mark.parametrize("store", ["folder", "s3"])
def test_a_cluster_copies_streams_and_restarts(
    store: str,
    database: Database,
    cluster: Cluster,
    new_store_process: Callable[..., StoreProcess],
    request: pytest.FixtureRequest,
) -> None:
    for table in ("items", "parts"):
        database.execute(ITEMS.format(table))
        database.execute(f"ALTER TABLE {table} ALTER name SET STORAGE EXTERNAL")
        database.execute(FILL.format(table, 3000))
        database.execute(f"UPDATE {table} SET name = repeat('long ', 2000) WHERE id % 500 = 0")
    lake = {}
    if store == "s3":
        s3: S3 = request.getfixturevalue("s3")
        lake = {"warehouse": f"s3://{S3.bucket}/cluster", "properties": s3.properties}
    before = len(cluster.executors())
    tables = {"items": None, "parts": None}
    kuvasz = new_store_process(
        group({"eu": database}, tables),
        lake=lake,
        spark=cluster.section(),
        pipeline={"transaction_spill_bytes": "256kB"},
    ).start()
    for table in tables:
        kuvasz.wait_event("copied", table=f"shop.{table}")
    for n in range(3):
        database.execute(f"UPDATE items SET n = {n} WHERE id % 3 = {n}")  # leaves large values out
        database.execute(f"DELETE FROM parts WHERE id % 7 = {n}")
    with database.connect() as session:  # larger than what is kept in memory: comes in parts
        session.execute("INSERT INTO items SELECT i, 1, repeat('v', 80) FROM generate_series(10001, 16000) i")
        session.execute("UPDATE items SET price = 1 WHERE id % 2 = 0")
    kuvasz.wait_confirmed(database)
    assert len(cluster.executors()) - before == cluster.cores
    assert [app["cores"] for app in cluster.state()["activeapps"]] == [cluster.cores]
    kuvasz.terminate()
    for table in tables:
        assert_equal(source_rows(database.url, table, sid="eu"), kuvasz.rows(table), key=("id",))

    database.execute("UPDATE parts SET n = 99 WHERE id < 100")
    database.execute("DELETE FROM items WHERE id BETWEEN 50 AND 150")
    assert kuvasz.start("--until-caught-up").wait() == 0, kuvasz.report()
    assert_equal(source_rows(database.url, "parts", sid="eu"), kuvasz.rows("parts"), key=("id",))
    kuvasz.assert_equal_everywhere("items", source_rows(database.url, "items", sid="eu"))
    if store == "s3":
        assert not [key for key in s3.keys("cluster/") if "_kuvasz" in key and not key.endswith("/")]
    else:
        assert not list((kuvasz.folder / "wh").rglob("*.spool"))
    assert not [line for line in kuvasz.output if "Exception" in line or "Traceback" in line], kuvasz.report()


def test_a_cluster_without_room_is_not_waited_for_for_ever(
    cluster: Cluster, new_store_process: Callable[..., StoreProcess]
) -> None:
    kuvasz = new_store_process(_NOTHING, spark=cluster.section(**{"spark.executor.memory": "100g"}))
    error = open_session(kuvasz)
    assert error.startswith(f"LakeError: {cluster.url} gave no executor within 2 s\nhint: see the cluster's page")


def test_a_spark_that_does_not_start_is_an_error_of_ours(new_store_process: Callable[..., StoreProcess]) -> None:
    # A master that does not answer ends the same way, but Spark asks it for a minute first.
    spark = {"master": "local[1]", "conf": {"spark.driver.memory": "plenty"}}
    error = open_session(new_store_process(_NOTHING, spark=spark))
    assert error.startswith("LakeError: spark does not start with master local[1]: ")
    assert "\nhint: check `spark.master` and `spark.conf`" in error


_NOTHING = [{"database": "none", "urls": [{"url": "postgresql:///none"}], "tables": {"none": None}}]

_OPEN = """
import sys
from pathlib import Path
from kuvasz.config.load import load
from kuvasz.errors import LakeError
from kuvasz.lake.jvm import spark
from kuvasz.lake.executors.jobs import Jobs
try:
    Jobs(spark.open_session(load(Path(sys.argv[1]), {}).config)).warm_up(patience_s=2.0)
except LakeError as error:
    print(f"LakeError: {error}")
"""


def open_session(kuvasz: StoreProcess) -> str:
    """Start Spark and run the first job, in a process of its own since a session is the whole process's."""
    command = [sys.executable, "-c", _OPEN, str(kuvasz.map)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
