#!/bin/sh
# Print a JAVA_HOME that Spark 4.1 can use: Java 17 or later with the module jdk.incubator.vector.
#
# Tried in turn: $JAVA_HOME, java on PATH, /usr/lib/jvm/*; on Debian as root a runtime is then installed.
set -eu
. "$(dirname "$0")/say.sh"

home_of() { # JAVA -> its home, if it will do
  "$1" -XshowSettings:properties -version 2>&1 </dev/null | awk -F' = ' '
    $1 ~ /^ *java.home$/ { home = $2 }
    $1 ~ /^ *java.specification.version$/ { version = $2 }
    END { if (home == "" || version + 0 < 17) exit 1; print home }'
}

is_usable() { # JAVA
  command -v "$1" >/dev/null 2>&1 && home=$(home_of "$1") &&
    "$1" --list-modules 2>/dev/null </dev/null | grep -q '^jdk.incubator.vector'
}

find_java() {
  for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java /usr/lib/jvm/*-17-*/bin/java /usr/lib/jvm/*-21-*/bin/java \
    /usr/lib/jvm/*/bin/java; do
    if is_usable "$java"; then
      printf '%s\n' "$home"
      return 0
    fi
  done
  return 1
}

install_java() {
  began=$(date +%s)
  apt_update
  for package in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless default-jre-headless; do
    if apt-cache show "$package" >/dev/null 2>&1 && apt_install "$package"; then
      say "installed $package in $(($(date +%s) - began)) s"
      return 0
    fi
  done
  return 1
}

if find_java; then
  exit 0
fi
hint="install a Java runtime 17 or 21 (Debian: apt install openjdk-17-jre-headless) and set JAVA_HOME to it"
if ! is_debian_root; then
  fail "no Java 17 or later with the module jdk.incubator.vector found" "$hint"
fi
say "no Java 17 or later with the module jdk.incubator.vector found: installing one from Debian"
install_java || fail "Debian's packages hold no such Java, or could not be reached" "$hint"
find_java || fail "the installed Java lacks the module jdk.incubator.vector" "$hint"
