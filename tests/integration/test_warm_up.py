"""A Python worker that dies before the first change ends no start: its job is run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kuvasz.errors import JobFailed
from kuvasz.lake.executors import warmup
from kuvasz.lake.executors.jobs import Jobs

pytestmark = pytest.mark.spark


class Dying:
    """A job whose workers kill themselves as often as there are files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, tasks: Iterable[int]) -> Iterator[int]:
        for task in tasks:
            if task == 0:
                for file in self.folder.iterdir():
                    file.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield task


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_worker_that_dies_while_it_warms_up_is_replaced(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    for number in range(deaths):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(warmup, "WarmUp", lambda: Dying(tmp_path))
    jobs = Jobs(spark_session)
    if deaths == 1:
        jobs.warm_up()
    else:
        with pytest.raises(JobFailed):
            jobs.warm_up()
    assert not list(tmp_path.iterdir())
