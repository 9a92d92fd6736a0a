"""What an embedded Spark listens on is of this machine alone, and talks to nobody without a secret."""

from __future__ import annotations

import psutil
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_spark_inside_kuvasz_listens_on_this_machine_alone(spark_session: SparkSession) -> None:
    gateway = spark_session.sparkContext._gateway
    assert gateway is not None
    jvm = psutil.Process(gateway.proc.pid)
    # What Python workers and their helpers listen on counts, too.
    assert spark_session.range(0, 10, 1, 2).mapInArrow(lambda batches: batches, "id long").count() == 10
    listening = [
        found.laddr.ip
        for process in (jvm, *jvm.children(recursive=True))
        for found in process.net_connections("inet")
        if found.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


def test_who_has_no_secret_is_not_talked_to(spark_session: SparkSession) -> None:
    context = spark_session.sparkContext
    environment = context._jvm.org.apache.spark.SparkEnv.get()
    assert environment.securityManager().isAuthenticationEnabled()
    assert len(environment.securityManager().getSecretKey()) >= 32
    assert context.uiWebUrl is None
