#!/bin/sh
# Install a Dagster and an Airflow beside kuvasz, each into a folder of its own below build/: once for each set of locks.
#
# kuvasz is what lies here, with the versions of requirements/run.lock. What cannot be had is named; the exit code is 1 then.
set -u
cd "$(dirname "$0")/.."
. scripts/say.sh
. scripts/index.sh

failed=0
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
# They come with theirs, which have no hashes here: uv wants all or none.
sed 's/ \\$//; /^ /d; /^#/d' requirements/run.lock >"$pins"

into() { # PROGRAM PACKAGE
  folder=build/$1
  wanted="$2 $(cat requirements/run.lock pyproject.toml | cksum) $PWD"
  [ "$(cat "$folder/ready" 2>/dev/null)" = "$wanted" ] && return 0
  say "installing $2 beside kuvasz into $folder (about 1.2 GB, most of it Spark)"
  began=$(date +%s)
  rm -rf "$folder"
  .venv/bin/python -m venv "$folder" &&
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" -r "$pins" "$2" </dev/null >&2 &&
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" --no-deps -e . </dev/null >&2 || return 1
  printf '%s' "$wanted" >"$folder/ready"
  say "$1 there after $(($(date +%s) - began)) s"
}

into dagster dagster==1.13.28 || failed=1
into airflow apache-airflow==3.3.2 || failed=1
[ "$failed" -eq 0 ] || printf 'hint: is the package index reached? see above\n' >&2
exit "$failed"
