from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from kuvasz.errors import LakeError
from kuvasz.lake.executors.jobs import Jobs, balance


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(st.integers(0, 10**9), max_size=40), st.integers(1, 9))
def test_balance_deals_every_task_once_and_evenly(sizes: list[int], count: int) -> None:
    tasks = list(range(len(sizes)))
    lists = balance(tasks, sizes, count)
    assert sorted(task for one in lists for task in one) == tasks
    assert len(lists) == min(count, len(tasks))
    if any(sizes):
        loads = [sum(sizes[task] for task in one) for one in lists]
        assert max(loads) - min(loads) <= max(sizes)


def test_tasks_of_no_size_do_not_leave_a_core_idle_beside_a_large_one() -> None:
    assert balance(["big", "a", "b"], [10, 1, 1], 2) == [["big"], ["a", "b"]]


_TOLD = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
  File "kuvasz/lake/files/data_file.py", line 420, in read_columns
FileNotFoundError: [Errno 2] Failed to open local file '1.parquet'
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
\tat org.apache.spark.util.SparkErrorUtils.tryWithSafeFinally$(SparkErrorUtils.scala:83)
\tat org.apache.spark.SparkException.<init>(SparkException.scala:21)
\tat java.base/java.lang.ErrorThread.run(Thread.java:840)
"""


def test_a_job_that_fails_says_what_failed_in_it_and_not_where_java_was() -> None:
    def fail(*_: object) -> None:
        raise Py4JError(_TOLD)

    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(parallelize=fail))
    with pytest.raises(LakeError) as caught:
        Jobs(session).run(list, [1], [1], slots=1)
    assert caught.value.message.endswith("Failed to open local file '1.parquet'")
