"""The lake: an embedded Spark, Iceberg's catalog and tables, and the position index of each table.

Changes enter as raw row bytes (`kuvasz.ports.TableWork`), Parquet files and deletion vectors leave, one commit per
table. The only package that imports pyspark; everything Iceberg does through the JVM goes through `jvm`.
"""
