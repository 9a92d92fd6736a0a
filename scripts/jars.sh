#!/bin/sh
# Fetch the jars Spark needs (the Iceberg runtime and the JDBC drivers) into Ivy's cache, and make an archive of their
# classes; once per version set, Java and user.
set -eu
cd "$(dirname "$0")/.."
. scripts/say.sh

stamp=.venv/.kuvasz-jars
wanted="$(cksum <kuvasz/lake/java/versions.py) $(cksum <requirements/run.lock) ${JAVA_HOME:-} ${HOME:-}"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
  exit 0
fi
say "fetching the jars of Iceberg and the JDBC drivers (about 60 MB at the first time)"
began=$(date +%s)
# Ivy reports at length: that is shown only when something went wrong.
if ! report=$(.venv/bin/python -m kuvasz.lake.iceberg.prefetch </dev/null 2>&1)
then
  printf '%s\n' "$report" >&2
  fail "the jars could not be fetched from Maven Central" "see above; Spark's spark.jars.ivySettings names a mirror"
fi
say "jars there after $(($(date +%s) - began)) s"
printf '%s\n' "$wanted" >"$stamp"
