# Sourced by the other scripts: messages go to standard error, so that standard output carries results only.

say() {
  printf 'setup: %s\n' "$*" >&2
}

fail() {
  printf 'setup: %s\n' "$1" >&2
  printf 'hint: %s\n' "$2" >&2
  exit 1
}

# True where packages can be installed without asking anyone: root on Debian or a child of it.
is_debian_root() {
  [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null 2>&1
}

# Install Debian packages: apt_install PACKAGE...
apt_install() {
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" \
    </dev/null >&2
}

apt_update() {
  DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 update </dev/null >&2
}
