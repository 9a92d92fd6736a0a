"""Spark's JVM and Iceberg's classes in it."""
