"""Other stores than the default: a catalog in PostgreSQL, an S3 server, a Spark cluster of two workers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
import requests as http
from pyspark.sql import SparkSession

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.jvm import spark
from tests.support import oracle
from tests.support.lake import LakeFolder
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process
from tests.support.waiting import wait_until

KEY, SECRET = "kuvasz", "kuvasz-secret"

#: Owner of the catalog's tables; the embedded server trusts local connections, so only its name is proved.
CATALOG_USER = "lake_keeper"


class PostgresCatalogFolder(LakeFolder):
    """A lake whose catalog is a database on a PostgreSQL server; files stay in a local folder."""

    def __init__(self, session: SparkSession, database: Database) -> None:
        super().__init__(session)
        self.database = database

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self.database.server.port}/{self.database.name}"

    @property
    def pyiceberg(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"postgresql+psycopg://{CATALOG_USER}@{self._address}",
            "warehouse": f"file://{self.folder}/wh",
        }

    def config(
        self,
        databases: list[dict],
        maintenance: Mapping[str, object] | None = None,
        lake: Mapping[str, object] | None = None,
        **pipeline: Any,
    ) -> Config:
        config = super().config(databases, maintenance, lake, **pipeline)
        in_postgres = config.lake.model_copy(
            update={
                "uri": f"jdbc:postgresql://{self._address}",
                "properties": {"jdbc.user": CATALOG_USER, "jdbc.password": "any"},
            }
        )
        config = config.model_copy(update={"lake": in_postgres})
        for name in list(spark.settings(super().config(databases, maintenance, lake, **pipeline))):
            if name.startswith(f"spark.sql.catalog.{self.catalog}."):
                self.session.conf.unset(name)
        for name, value in spark.settings(config).items():
            if name.startswith("spark.sql.catalog."):
                self.session.conf.set(name, value)
        return config


def own_by_keeper(database: Database) -> None:
    """Let the owner of a catalog's tables make them in a database."""
    database.execute(
        f"DO $$ BEGIN CREATE ROLE {CATALOG_USER} LOGIN PASSWORD 'any'; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    database.execute(f"GRANT ALL ON SCHEMA public TO {CATALOG_USER}")


@pytest.fixture
def postgres_catalog(postgres18: EmbeddedPostgres, spark_session: SparkSession) -> Iterator[PostgresCatalogFolder]:
    """A lake with its catalog in PostgreSQL."""
    database = create_database(postgres18)
    own_by_keeper(database)
    folder = PostgresCatalogFolder(spark_session, database)
    yield folder
    folder.remove()
    drop_database(database)


class S3:
    """moto's S3 server in a process of its own, with one bucket."""

    bucket = "lake"

    def __init__(self, port: int) -> None:
        import boto3  # only here: it is slow, and few tests need it
        import botocore.config

        self.endpoint = f"http://127.0.0.1:{port}"
        self.client: Any = boto3.client(
            "s3", endpoint_url=self.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
            region_name="us-east-1", config=botocore.config.Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip

    @property
    def properties(self) -> dict[str, str]:
        """What a user writes into `lake.properties`: the same names for Iceberg and PyIceberg."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "client.region": "us-east-1",
        }

    def keys(self, prefix: str = "") -> list[str]:
        """The names of all objects."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    @contextlib.contextmanager
    def checking_credentials(self) -> Iterator[None]:
        """Refuse callers that the server does not know: all of them."""
        self._reset_auth("0")
        try:
            yield
        finally:
            self._reset_auth("inf")

    def _reset_auth(self, free_requests: str) -> None:
        address = f"{self.endpoint}/moto-api/reset-auth"
        answer = http.post(address, free_requests, headers={"Content-Type": "text/plain"}, timeout=10)
        answer.raise_for_status()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 store."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with served(command, Path(tempfile.gettempdir()) / f"kuvasz-moto-{port}.log") as is_alive:
        wait_until(lambda: is_alive() and is_open(port), "moto listens")
        store = S3(port)
        store.client.create_bucket(Bucket=S3.bucket)
        yield store


class StoreProcess(Process):
    """kuvasz as a process on another store or another Spark.

    Args:
        databases: The map's groups.
        lake: Options of the section ``lake`` that differ.
        spark: The section ``spark``, if it differs.
        more: See `Process`.
    """

    def __init__(
        self,
        databases: Sequence[Mapping[str, object]],
        *,
        lake: Mapping[str, object] | None = None,
        spark: Mapping[str, object] | None = None,
        **more: Any,
    ) -> None:
        self._spark = spark
        super().__init__(databases, lake=lake, **more)

    @property
    def pyiceberg(self) -> dict[str, str]:
        lake = self.config.lake
        return {
            "type": "sql", "uri": f"sqlite:///{lake.sqlite_file}", "warehouse": lake.warehouse_location,
            **{name: str(value) for name, value in lake.properties.items()},
        }  # fmt: skip

    @property
    def config(self) -> Config:
        """The configuration the process reads."""
        return load(self.map, {}).config

    def write_map(self, databases: Sequence[Mapping[str, object]]) -> None:
        super().write_map(databases)
        if self._spark is not None:
            document = json.loads(self.map.read_text())
            document["spark"] = dict(self._spark)
            self.map.write_text(json.dumps(document))

    def assert_equal_everywhere(self, target: str, source: oracle.Rows) -> None:
        """A table has the source's rows for PyIceberg, and for a Spark that knows nothing of kuvasz."""
        oracle.assert_equal(source, self.rows(target), key=("id",))
        oracle.assert_equal(source, self._plain_spark_rows(target), key=("id",))

    def _plain_spark_rows(self, target: str) -> oracle.Rows:
        config = self.config
        settings = {
            name: value for name, value in spark.settings(config).items()
            if name.startswith("spark.sql.catalog.") or "lassPath" in name or name == "spark.jars.packages"
        }  # fmt: skip
        file = self.folder / f"{target}.arrow"
        statement = f"SELECT * FROM {config.lake.name}.shop.{target}"
        subprocess.run(
            [sys.executable, "-c", _READ, json.dumps(settings), statement, str(file)],
            check=True, capture_output=True, timeout=900,  # it starts with no class of its own compiled
        )  # fmt: skip
        import pyarrow as pa

        return oracle.rows_of_arrow(pa.ipc.open_file(file).read_all())


#: A reader's own program: Spark with Iceberg, without a line of kuvasz.
_READ = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.session.timeZone", "UTC")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
table = builder.getOrCreate().sql(sys.argv[2]).toArrow()
with pa.OSFile(sys.argv[3], "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
    writer.write_table(table)
"""


@pytest.fixture
def new_store_process() -> Iterator[Callable[..., StoreProcess]]:
    """Makes `StoreProcess` objects that are gone after the test."""
    made: list[StoreProcess] = []

    def make(databases: Sequence[Mapping[str, object]], **options: Any) -> StoreProcess:
        made.append(StoreProcess(databases, **options))
        return made[-1]

    yield make
    for process in made:
        process.remove()


class Cluster:
    """A standalone Spark of the installed package: a master and two workers, who share a secret."""

    workers_wanted = 2
    secret = "of the cluster"

    def __init__(self, folder: Path, port: int, web_port: int, cores: int) -> None:
        self.folder = folder
        self.url = f"spark://127.0.0.1:{port}"
        self.cores = cores  #: of all workers
        self._web = f"http://127.0.0.1:{web_port}/json/"

    def state(self) -> dict[str, Any]:
        """What the master says of itself."""
        return http.get(self._web, timeout=10).json()

    def workers(self) -> int:
        """How many workers are registered."""
        try:
            return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])
        except http.RequestException:
            return 0

    def applications(self) -> set[str]:
        """The ids of all applications that run."""
        return {app["id"] for app in self.state()["activeapps"]}

    def executors(self) -> list[Path]:
        """The folders of all executors that the workers have started."""
        return sorted(self.folder.glob("work-*/app-*/*"))

    def executor_processes(self, application: str) -> list[psutil.Process]:
        """The processes of the executors of an application."""
        return self._processes("CoarseGrainedExecutorBackend", application)

    def worker_process(self, executor: psutil.Process) -> psutil.Process:
        """The process of the worker that has started an executor."""
        work = Path(executor.cwd()).parents[1]
        (found,) = self._processes("deploy.worker.Worker", str(work))
        return found

    @staticmethod
    def _processes(*words: str) -> list[psutil.Process]:
        """Return the processes below this one whose commands have some words among their arguments, in part."""
        found = []
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                command = one.cmdline()
                if command and "java" in command[0] and all(any(word in part for part in command) for word in words):
                    found.append(one)
        return found

    def section(self, **conf: str) -> dict[str, object]:
        """The section ``spark`` of a map that uses the cluster."""
        return {
            "master": self.url,
            "conf": {
                "spark.executor.memory": "512m",
                "spark.driver.host": "127.0.0.1",
                "spark.authenticate.secret": self.secret,
                **conf,
            },
        }


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Spark cluster with two workers, who stay."""
    with spark_cluster() as made:
        yield made


@contextlib.contextmanager
def spark_cluster(cores: int = 1) -> Iterator[Cluster]:
    """Run a Spark cluster with two workers.

    Args:
        cores: Of each worker, which has 1 GB for each.
    """
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-cluster-"))
    port, web_port = free_port(), free_port()
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    properties = folder / "cluster.conf"
    properties.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {Cluster.secret}\nspark.network.crypto.enabled true\n"
    )
    common = ["--host", "127.0.0.1", "--properties-file", str(properties)]
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        master = [
            f"{deploy}.master.Master",
            *common,
            "--port",
            str(port),
            "--webui-port",
            str(web_port),
        ]
        is_alive = stack.enter_context(served([program, *master], folder / "master.log"))
        wait_until(lambda: is_alive() and is_open(port), "the master listens")
        for number in range(Cluster.workers_wanted):
            worker = [
                f"{deploy}.worker.Worker", *common, "--cores", str(cores), "--memory", f"{cores}g",
                "--webui-port", "0", "--work-dir", str(folder / f"work-{number}"), f"spark://127.0.0.1:{port}",
            ]  # fmt: skip
            stack.enter_context(served([program, *worker], folder / f"worker-{number}.log"))
        made = Cluster(folder, port, web_port, Cluster.workers_wanted * cores)
        wait_until(lambda: made.workers() == Cluster.workers_wanted, "two workers are registered")
        yield made


@contextlib.contextmanager
def served(command: Sequence[str], log: Path) -> Iterator[Callable[[], bool]]:
    """Run a server; gives a function that says whether it lives, and fails with its log if it does not."""
    # Nothing of the tests' own surroundings: what the executors import must be installed.
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_SUBMIT_OPTS"}
    }
    environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment, cwd=log.parent
        )

    def is_alive() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        return True

    try:
        yield is_alive
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
