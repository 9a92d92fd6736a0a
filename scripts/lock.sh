#!/bin/sh
# Choose the versions that .venv and the image are installed from, and write them with the hashes of all their files,
# for every platform and Python from 3.11 on, into requirements/*.lock: lock.sh [keep]
#
# "keep" leaves what fits pyproject.toml as it is; otherwise everything goes to its newest version.
set -eu
cd "$(dirname "$0")/.."
. scripts/say.sh

upgrade=--upgrade
[ "${1:-}" = keep ] && upgrade=

. scripts/index.sh

lock() { # NAME [ARGUMENT...]
  name=$1
  shift
  say "requirements/$name.lock"
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes $upgrade \
    --custom-compile-command "make lock" --output-file "requirements/$name.lock" "$@"
}

lock dev pyproject.toml --extra dev
# The smaller sets have the same versions as the one that is tested.
upgrade=--upgrade
lock demo pyproject.toml --extra demo --constraints requirements/dev.lock
lock docs pyproject.toml --extra docs --constraints requirements/dev.lock
lock tracing pyproject.toml --extra tracing --constraints requirements/dev.lock
lock run pyproject.toml --constraints requirements/dev.lock
[ "${1:-}" = keep ] && upgrade=
lock build requirements/build.in --constraints requirements/dev.lock
lock installer requirements/installer.in --constraints requirements/dev.lock
