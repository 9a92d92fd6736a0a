"""The jars kuvasz runs with, in one place: they follow the upper bound of pyspark in pyproject.toml."""

from __future__ import annotations

ICEBERG = "1.12.0"

#: Maven coordinates every session needs.
CORE = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}",
    "org.xerial:sqlite-jdbc:3.53.2.1",
    "org.postgresql:postgresql:42.7.7",
)

#: Needed where the warehouse is an S3 store.
AWS = (f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",)
