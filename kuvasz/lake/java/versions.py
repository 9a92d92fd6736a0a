"""The jars kuvasz runs with, in one place: they follow the upper bound of pyspark in pyproject.toml."""

from __future__ import annotations

from collections.abc import Mapping

ICEBERG = "1.12.0"

#: Maven coordinates every session needs.
CORE = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}",
    "org.xerial:sqlite-jdbc:3.53.2.1",
    "org.postgresql:postgresql:42.7.13",
)

#: Needed where the warehouse is an S3 store.
AWS = (f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",)

#: What Ivy would bring along, unchecked: annotations that the JDBC driver was compiled with.
EXCLUDED = ("org.checkerframework:checker-qual",)

#: Digests of the jars as they were tested; a new version comes with new ones (`sha256sum` of what Ivy has cached).
SHA256: Mapping[str, str] = dict(
    zip(
        CORE + AWS,
        (
            "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
            "f55e405ed96d5ffe629e05b7b51b059e1c7d64527c0cc90a972fbac06730ccc1",
            "6e0e4cc2d8cae902084f8a2b18728b073a6fd9d1f87c9d8bff8f298c18185b93",
            "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
        ),
        strict=True,
    )
)
