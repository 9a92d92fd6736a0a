"""kuvasz replicates many PostgreSQL databases into one Apache Iceberg lake, continuously and exactly once."""

from __future__ import annotations

__version__ = "0.1.0"
