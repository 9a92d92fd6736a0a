"""The Spark session: its jars, its settings, its start and end. Nothing else."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from py4j.java_gateway import JavaGateway
from py4j.protocol import BYTES_TYPE, Py4JError, register_output_converter
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from kuvasz.config.model import CatalogType, Config
from kuvasz.config.secrets import SECRET_NAME, is_secret_name
from kuvasz.errors import LakeError
from kuvasz.lake.files.file_io import PRELOADED, needs_pyiceberg
from kuvasz.lake.java import jars, names
from kuvasz.lake.java.class_archive import archive_of, option_to_use
from kuvasz.lake.java.output import SparkOutput

#: Settings that may hold secrets under any name.
_PRIVATE = ("spark.sql.catalog.", "spark.hadoop.")

_PACKAGES = "spark.jars.packages"

_JVM_OPTIONS = "spark.driver.defaultJavaOptions"

#: Settings that a user may override. Most were measured, see docs/decisions.md.
DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "kuvasz",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    # Spark looks for further ones on the class path and finds its own: functions of its library for machine learning,
    # that nobody can call by name, for whose types it reads itself by reflection: a fifth of the JVM's start.
    "spark.sql.extensions.test.loadFromCp": "false",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "kuvasz.lake.executors.daemon",
    # Our tasks are idempotent per chunk file, but a failing value fails again: do not try four times.
    "spark.task.maxFailures": "2",
    "spark.driver.memory": "1g",
    # PySpark gives the JVM tasks, and what is large of a job, in files, unless this has it use sockets, and Spark
    # spills what it does as it is. They have keys, passwords and rows.
    "spark.io.encryption.enabled": "true",
    # A JVM that goes on without memory may have lost any of its threads: what waits for them would wait for ever.
    _JVM_OPTIONS: "-XX:+ExitOnOutOfMemoryError",
    # What event logs and pages of settings hide, by name or value; Spark's own expression knows fewer.
    "spark.redaction.regex": SECRET_NAME.pattern,
}

#: What the JVM ends with for want of memory: by that option, or by Spark when a task met it.
OUT_OF_MEMORY = frozenset({3, 52})

#: Only where driver and executors are one JVM: it plans and commits, the work is done in Python processes.
LOCAL_DEFAULTS: Mapping[str, str] = {
    # Hadoop's local file system runs the program chmod for each file it creates; VFORK is the cheapest way to do so.
    # With one compiler the JVM keeps room for 48 MB of compiled code, and what finds none ends with an error: it is
    # given the room that it has with both, which is memory only once it is used.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        " -Djdk.lang.Process.launchMechanism=VFORK"
    ),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Its ports are of this machine alone, but so are other users; Spark makes the secret.
    "spark.authenticate": "true",
}

#: Where others may reach the ports: who knows no secret is not talked to, and what is said cannot be read on the way.
CLUSTER_DEFAULTS: Mapping[str, str] = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} spark %p %c{1}: %m%n
"""


def open_session(config: Config) -> SparkSession:
    """Start Spark, or connect to the cluster that `spark.master` names.

    The first start downloads the jars of `versions` (some 60 MB) into Ivy's cache; later starts find them there.

    Raises:
        LakeError: The jars cannot be fetched, or are others than were tested; a setting is wrong, or the cluster does
            not answer.
    """
    # Executors must run the interpreter that has kuvasz installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {"spark.master": config.spark.master, **settings(config)}
    # Whoever names the jars says himself which ones are right.
    wanted = () if _PACKAGES in config.spark.conf else jars.coordinates(config)
    jars.check(wanted)
    if _PACKAGES in chosen:
        print("first start: downloading the Iceberg jars …", file=sys.stderr)  # noqa: T201 (before logging is up)
    builder, output = SparkSession.builder, SparkOutput()
    for name, value in chosen.items():
        builder = builder.config(name, value)
    try:
        with _quiet_start():
            _open_context(chosen, output)
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    except (Py4JError, PySparkException, OSError) as error:
        raise _no_start(config, str(error).splitlines(), output.said()) from error
    output.started()
    if _PACKAGES in chosen:
        jars.check(wanted)
    return session


def _no_start(config: Config, told: Sequence[str], said: Sequence[str]) -> LakeError:
    """Return why Spark did not start, by what PySpark tells and what the JVM said before."""
    unresolved = [line.strip() for line in said if "unresolved dependency" in line or "Server access error" in line]
    if unresolved:
        return LakeError(f"the Iceberg jars were not fetched: {unresolved[0][:300]}", hint=jars.HINT)
    lines = [line.strip() for line in (*told, *said) if line.strip()]
    telling = [line for line in lines if "Exception" in line or line.startswith("Error")] or lines or ["?"]
    return LakeError(
        f"spark does not start with master {config.spark.master}: {telling[0][:300]}",
        hint="check `spark.master` and `spark.conf`; Spark's own lines are above",
    )


def _open_context(chosen: Mapping[str, str], output: SparkOutput) -> None:
    """Start the JVM without a secret: PySpark writes each setting on its command line, where all users see it."""
    if SparkContext._active_spark_context is not None:
        return
    _know_numpy()
    _take_bytes_whole()
    if SparkContext._gateway is None:
        shown = [(name, value) for name, value in chosen.items() if not _may_be_secret(name)]
        gateway = _launch(SparkConf().setAll(shown), output)
    else:
        gateway = SparkContext._gateway
    names.settle(gateway.jvm)
    SparkContext(conf=SparkConf().setAll(list(chosen.items())), gateway=gateway)


def _know_numpy() -> None:
    """Have PySpark tell numpy's values by their types.

    For each object that goes to the JVM it asks a module that its own tests have whether there is numpy, and that
    module loads whatever a test may need, pandas first: 400 modules, half a second of CPU of a start.
    """
    NumpyScalarConverter.can_convert = _is_scalar  # type: ignore[method-assign, assignment]
    NumpyArrayConverter.can_convert = _is_array  # type: ignore[method-assign, assignment]


def _is_scalar(_: NumpyScalarConverter, value: object) -> bool:
    return isinstance(value, np.generic)


def _is_array(_: NumpyArrayConverter, value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1


def _take_bytes_whole() -> None:
    """Have py4j decode an array of bytes at once: it makes a list of numbers of it, 25 ms for 400 kB, here one."""
    register_output_converter(BYTES_TYPE, _decoded)


def _decoded(text: str, _: object) -> bytearray:
    return bytearray(base64.b64decode(text))


def _launch(conf: SparkConf, output: SparkOutput) -> JavaGateway:
    """Start the JVM in a session of its own: a signal to kuvasz's process group is for kuvasz alone.

    It ends with its standard input, so it outlives nobody.
    """
    with output.pipe() as end:
        process = {"start_new_session": True, "stdout": end, "stderr": end}
        gateway: JavaGateway = launch_gateway(conf, process)  # type: ignore[no-untyped-call]
    return gateway


def _may_be_secret(name: str) -> bool:
    return name.startswith(_PRIVATE) or (is_secret_name(name) and name != "spark.redaction.regex")


def settings(config: Config) -> dict[str, str]:
    """Return every Spark setting of a session, the user's own last."""
    is_local = config.spark.is_local
    catalog = f"spark.sql.catalog.{config.lake.name}"
    chosen = dict(DEFAULTS)
    if is_local:
        chosen |= LOCAL_DEFAULTS
    elif not config.spark.why_insecure:
        chosen |= CLUSTER_DEFAULTS
    chosen |= jars.settings(jars.coordinates(config), is_local=is_local)
    lake = config.lake
    if lake.vends_credentials or needs_pyiceberg(lake.properties, lake.warehouse_location):
        chosen[f"spark.executorEnv.{PRELOADED}"] = "1"
    chosen[catalog] = "org.apache.iceberg.spark.SparkCatalog"
    chosen |= {f"{catalog}.{name}": value for name, value in catalog_properties(config).items()}
    chosen |= {name: str(value) for name, value in config.spark.conf.items()}
    archive = archive_of(chosen.get("spark.driver.extraClassPath", ""))
    if is_local and archive.is_file():
        chosen[_JVM_OPTIONS] = f"{chosen[_JVM_OPTIONS]} {option_to_use(archive)}"
    return chosen


def catalog_properties(config: Config) -> dict[str, str]:
    """Return the properties of the Iceberg catalog, as Spark's catalog and Iceberg's own classes take them."""
    lake = config.lake
    properties = {
        "type": str(lake.type),
        "uri": lake.catalog_uri,
        "warehouse": lake.warehouse_location,
        "cache-enabled": "false",
    }
    if lake.type is CatalogType.JDBC:
        properties["jdbc.schema-version"] = "V1"
    if lake.sqlite_file is not None:
        # SQLite has one writer: with more connections concurrent commits fail with SQLITE_BUSY.
        properties["clients"] = "1"
        lake.sqlite_file.parent.mkdir(parents=True, exist_ok=True)
    if lake.type in {CatalogType.JDBC, CatalogType.HIVE} and jars.is_on_s3(config):
        # These catalogs fall back to Hadoop's file systems, and the bundle has none for S3.
        properties["io-impl"] = jars.S3_FILE_IO
    return properties | lake.properties


def fetch(coordinates: Sequence[str]) -> None:
    """Download jars into Ivy's cache, unless they are there, and check them.

    Raises:
        LakeError: One is another than was tested.
    """
    if not all(map(jars.cached, coordinates)):
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        for name, value in jars.settings(coordinates, is_local=True).items():
            builder = builder.config(name, value)
        builder.getOrCreate().stop()
    jars.check(coordinates)


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep spark-submit's greetings and Ivy's report off the terminal; errors still show."""
    with tempfile.TemporaryDirectory(prefix="kuvasz-log4j-") as folder:
        file = Path(folder) / "log4j2.properties"
        file.write_text(_LOG4J, encoding="utf-8")
        before = os.environ.get("SPARK_SUBMIT_OPTS")
        os.environ["SPARK_SUBMIT_OPTS"] = f"{before or ''} -Dlog4j2.configurationFile=file://{file}".strip()
        try:
            yield
        finally:
            if before is None:
                del os.environ["SPARK_SUBMIT_OPTS"]
            else:
                os.environ["SPARK_SUBMIT_OPTS"] = before
