#!/bin/sh
# Print the path of a Python 3.11 or later; $PYTHON3 is tried first.
set -eu
. "$(dirname "$0")/say.sh"

for name in ${PYTHON3:+"$PYTHON3"} python3.13 python3.12 python3.11 python3 python; do
  # Asked, not looked up: version managers leave shims on PATH for versions that are not selected.
  if path=$("$name" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1); print(sys.executable)' 2>/dev/null)
  then
    printf '%s\n' "$path"
    exit 0
  fi
done
fail "no Python 3.11 or later found" "install python3.11 or later, or name one: make PYTHON3=/path/to/python3.12 …"
