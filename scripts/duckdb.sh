#!/bin/sh
# Fetch a DuckDB with its Iceberg extension into build/duckdb, of versions that belong together: once.
#
# It loads no extension that its makers have not signed.
set -eu
cd "$(dirname "$0")/.."
. scripts/say.sh

if [ ! -f build/duckdb/ready ]; then
  say "fetching DuckDB"
  rm -rf build/duckdb
  .venv/bin/python -m venv build/duckdb
  build/duckdb/bin/python -m pip install -q duckdb==1.4.4 pytz==2025.2 duckdb-ext==0.1.2 \
    duckdb-ext-avro==1.4.4.20260205 duckdb-ext-iceberg==1.4.4.20260205
  touch build/duckdb/ready
fi
