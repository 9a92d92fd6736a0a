"""Reads a table of a lake with Spark, and a copy of it that is made here, in turn; prints the seconds as JSON.

python -m benchmarks.spark_reader --config map.yaml --table load_0

With `--seconds` it scans both at random moments for so long, and prints the seconds of each pair.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.config import load
from kuvasz.lake.jvm import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Point queries of one measurement.
_POINTS = 10

#: Rounds at random moments, at least.
_LEAST = 3


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    config = load.load(given.config, None, {}).config
    # As other readers run it: kuvasz's own JVM has little to compute and is spared the optimizing compiler.
    config.spark.conf["spark.driver.extraJavaOptions"] = ""
    session = spark.open_session(config)
    try:
        space = f"{config.lake.name}.{config.lake.namespace}"
        tables = {"live": f"{space}.{given.table}", "fresh": f"{space}.{given.table}_fresh"}
        session.sql(f"DROP TABLE IF EXISTS {tables['fresh']}")
        # In the order of the key, as an initial copy finds the rows of a table that grew by its key.
        session.sql(f"CREATE TABLE {tables['fresh']} USING iceberg AS SELECT * FROM {tables['live']} ORDER BY id")
        if given.seconds is not None:
            print(json.dumps(_pairs(session, tables, given.seconds)))
            return
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(given.repeats + 1):
            for name, table in tables.items():
                found.setdefault("full scan", {}).setdefault(name, []).append(_scan(session, table))
                found.setdefault("point query", {}).setdefault(name, []).append(_points(session, table))
        # The first round loads and compiles.
        print(json.dumps({query: {name: times[1:] for name, times in of.items()} for query, of in found.items()}))
    finally:
        session.stop()


def _pairs(session: SparkSession, tables: dict[str, str], seconds: float) -> list[list[float]]:
    """Return the seconds of scans of all tables one after another, at random moments."""
    dice = random.Random(2)
    found: list[list[float]] = []
    end_at = time.monotonic() + seconds
    while len(found) < _LEAST or time.monotonic() < end_at:
        for table in tables.values():
            session.catalog.refreshTable(table)
        found.append([_scan(session, table) for table in tables.values()])
        time.sleep(dice.uniform(0.0, 8.0))
    return found[1:]  # the first round loads and compiles


def _scan(session: SparkSession, table: str) -> float:
    """Read every column of every row into nothing."""
    began = time.perf_counter()
    session.table(table).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _points(session: SparkSession, table: str) -> float:
    """Return the seconds of one query by key, on average."""
    [(top,)] = session.sql(f"SELECT max(id) FROM {table}").collect()
    began = time.perf_counter()
    for number in range(_POINTS):
        session.sql(f"SELECT * FROM {table} WHERE id = {1 + (number * 7919 * 7919) % top}").collect()
    return (time.perf_counter() - began) / _POINTS


if __name__ == "__main__":
    main()
