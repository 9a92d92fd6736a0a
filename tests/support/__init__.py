"""What the tests stand on: servers and lakes to try on, truths to compare with, and things built by hand.

- Real parts: `postgres`, `restore` (a server put back), `lake` (Spark, kuvasz in a thread), `process` (kuvasz as a
  command), `stores` (S3, another catalog, a cluster), `proxy` (the network between), `torn` (a storage that fails).
- Truths: `oracle` (rows of a source and of the lake in one form), `observer` and `replay` (readers of the same WAL),
  `model` (what each table type holds), `worlds` (a lake with what its reader sees).
- Sources that change: `two_tables`, `items` (has everything), `evolving` (its schema changes), `load` (never rests),
 and drawn at random `strategies`, `programs`, `histories` (with `tagged_values`, `history_model`, `history_rules`,
  `history_meanings`, `history_batch` and `history_oracle`); beside them `verify_bench` and `crash_scene`.
- The lake of production without Spark, `local_lake`: its jobs run in the test's process, upon real files and tables
  of a `local_catalog`.
- Built by hand, for tests without server and Spark: `wires`, `pgoutput`, `changes`, `shapes`, `partitions`,
  `source_table`, `lake_table`, `lake_columns`, `scene`, `keys`, `maps`, `snapshots`.
- `waiting` for conditions; `failpoints`, where kuvasz is killed; of the house `rooms` (the page that shows it),
  `mutations` (facts left out) and `line_coverage` (what ran).
"""
