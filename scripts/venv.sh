#!/bin/sh
# Make .venv and install kuvasz with one extra into it: venv.sh demo|docs|dev
#
# The versions are those of requirements/*.lock, each file checked against its hash. Done again only when those or
# pyproject.toml changed, the folder was moved or the interpreter is another one; a stamp per extra holds what it was done
# for. Two calls at a time wait for each other.
set -eu
cd "$(dirname "$0")/.."
. scripts/say.sh

extra=${1:?usage: venv.sh demo|docs|dev}

if [ -z "${KUVASZ_VENV_LOCKED:-}" ] && command -v flock >/dev/null 2>&1; then
  KUVASZ_VENV_LOCKED=1 exec flock scripts/say.sh scripts/venv.sh "$extra" # locks any file that is always there
fi

wanted() {
  printf '%s\n' "$PWD"
  .venv/bin/python -c 'import sys; print(sys.version)'
  cat pyproject.toml requirements/*.lock | cksum
}

is_done() { # STAMP
  [ -x .venv/bin/python ] && [ -f "$1" ] && [ "$(cat "$1")" = "$(wanted)" ]
}

# The development set contains the others.
if is_done ".venv/.kuvasz-$extra" || is_done .venv/.kuvasz-dev; then
  exit 0
fi

if [ -x .venv/bin/python ] && [ -f .venv/.kuvasz-folder ] && [ "$(cat .venv/.kuvasz-folder)" != "$PWD" ]; then
  say "this folder was moved or copied: .venv is made anew"
  rm -rf .venv
fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  python=$(scripts/python.sh)
  say "making .venv with $("$python" --version) ($python)"
  if ! "$python" -m venv --clear .venv >&2; then
    if is_debian_root; then
      # Debian keeps ensurepip in a package of its own.
      say "the module ensurepip is missing: installing Debian's venv package"
      apt_update
      version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
      apt_install "python$version-venv" || apt_install python3-venv
      "$python" -m venv --clear .venv >&2
    else
      fail "$python cannot make virtual environments" "install its venv module (Debian: apt install python3-venv)"
    fi
  fi
fi

printf '%s' "$PWD" >.venv/.kuvasz-folder
say "installing kuvasz[$extra] into .venv (about 500 MB at the first time, most of it Spark)"
began=$(date +%s)
# uv takes a quarter of pip's time: pip reads the index pages of all packages one by one, on one processor. PySpark comes
# as a source, and what is built of it is unpacked at once: it is not compressed in between.
by_uv() {
  .venv/bin/uv pip install --quiet --python .venv/bin/python "$@" </dev/null >&2
}
by_pip() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" </dev/null >&2
}
# Nothing is built with tools that are not locked, too.
all_by() { # COMMAND [ARGUMENT OF THE PACKAGES...]
  how=$1
  shift
  "$how" --require-hashes -r requirements/build.lock &&
    "$how" --require-hashes --no-build-isolation "$@" -r "requirements/$extra.lock" &&
    "$how" --no-deps --no-build-isolation -e .
}
by_pip --require-hashes -r requirements/installer.lock
. scripts/index.sh
if ! all_by by_uv --config-settings-package "pyspark:--build-option=--compression=stored"; then
  say "uv did not do it: pip does"
  all_by by_pip
fi
say "installed in $(($(date +%s) - began)) s"
wanted >".venv/.kuvasz-$extra"
