#!/bin/sh
# Fetch a Trino server that reads Iceberg into build/trino, by the Ivy that pyspark has: once, 540 MB on the way.
#
# It needs Java 24 or later, which Spark does not: build/trino/java says which one it is run by. Tried in turn:
# $TRINO_JAVA_HOME, $JAVA_HOME, java on PATH, /usr/lib/jvm/*.
set -eu
cd "$(dirname "$0")/.."
. scripts/say.sh

version=476
home=build/trino
# SHA-256, and what it is of.
digests="0f388f9967c177ae70a47c099082fc95387f0c3cb96d8000d1d41fc3a5223158  trino-server-core.tar.gz
99edba5b491ed94d599aeb61e0794272d3569d8b563f3bb8569e8a49daa87b6c  trino-iceberg.zip"

find_java() {
  for java in ${TRINO_JAVA_HOME:+"$TRINO_JAVA_HOME/bin/java"} ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java \
    /usr/lib/jvm/*/bin/java; do
    if command -v "$java" >/dev/null 2>&1 && [ "$(version_of "$java")" -ge 24 ]; then
      command -v "$java"
      return 0
    fi
  done
  return 1
}

version_of() { # JAVA -> 17, 25, …
  "$1" -XshowSettings:properties -version 2>&1 </dev/null | awk -F' = ' '
    $1 ~ /^ *java.specification.version$/ { version = $2 + 0 }
    END { print version + 0 }'
}

# Their descriptions say of what kind they are in words that Ivy does not know.
module() {
  printf '<ivy-module version="2.0"><info organisation="kuvasz" module="trino"/><dependencies>\n'
  for artifact in trino-server-core:tar.gz trino-iceberg:zip; do
    printf '<dependency org="io.trino" name="%s" rev="%s" transitive="false"><artifact name="%s" type="%s" ext="%s"/></dependency>\n' \
      "${artifact%:*}" "$version" "${artifact%:*}" "${artifact#*:}" "${artifact#*:}"
  done
  printf '</dependencies></ivy-module>\n'
}

java=$(find_java) || fail "no Java 24 or later found, which Trino $version needs" "install one, and set TRINO_JAVA_HOME to it"
if [ ! -f "$home/$version" ]; then
  say "fetching Trino $version (about 540 MB)"
  began=$(date +%s)
  rm -rf "$home"
  mkdir -p "$home/plugin" "$home/packed"
  trap 'rm -rf "$home/packed"' EXIT
  module >"$home/packed/ivy.xml"
  report=$("$java" -jar .venv/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -warn -cache "$home/packed/cache" \
    -ivy "$home/packed/ivy.xml" -retrieve "$home/packed/[artifact].[ext]" </dev/null 2>&1) || true
  if ! (cd "$home/packed" && printf '%s\n' "$digests" | sha256sum --check --strict >&2); then
    printf '%s\n' "$report" >&2
    fail "Trino did not come from Maven Central as it was tested" "see above; JAVA_TOOL_OPTIONS gives Java a proxy"
  fi
  tar -xzf "$home/packed/trino-server-core.tar.gz" -C "$home" --strip-components 1
  .venv/bin/python -m zipfile -e "$home/packed/trino-iceberg.zip" "$home/packed"
  mv "$home/packed/trino-iceberg-$version" "$home/plugin/iceberg"
  touch "$home/$version"
  say "Trino there after $(($(date +%s) - began)) s"
fi
printf '%s\n' "$java" >"$home/java"
