#!/bin/sh
# Build a Debian package of kuvasz for the release of Debian, or of Ubuntu, on which it runs, and print its path.
#
#   deploy/deb/build.sh [FOLDER]      # into FOLDER, else dist/
#
# Everything of Python is inside, by the locks of requirements/, for Debian's own python3; Java is a dependency. Nothing
# but dpkg-deb, python3 with venv and pip, and the package index is needed. PACKAGES=FOLDER takes what is installed in
# that folder, instead of what pip fetches.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-dist}
python=/usr/bin/python3
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
minor=$("$python" -c 'import sys; print(sys.version_info.minor)')
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
lib=$stage/opt/kuvasz/lib

install -d "$lib" "$stage/opt/kuvasz/bin" "$stage/usr/bin" "$stage/DEBIAN"
if [ -n "${PACKAGES:-}" ]; then
  cp -a "$PACKAGES/." "$lib"
else
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --require-hashes -r requirements/build.lock
  "$work/venv/bin/pip" install --quiet --require-hashes --no-build-isolation --target "$lib" -r requirements/run.lock
  rm -rf "$lib/bin"
fi
cp -a kuvasz "$lib/kuvasz"
find "$lib/kuvasz" -name __pycache__ -prune -exec rm -rf {} +
# Its user may not write there: what is not compiled now, each start and each verb would compile anew.
"$python" -m compileall -q -j 0 -s "$stage" "$lib/kuvasz"

install -m 755 deploy/deb/kuvasz "$stage/opt/kuvasz/bin/kuvasz"
ln -s /opt/kuvasz/bin/kuvasz "$stage/usr/bin/kuvasz"
install -D -m 644 deploy/kuvasz.service "$stage/lib/systemd/system/kuvasz.service"
install -D -m 644 deploy/deb/logrotate "$stage/etc/logrotate.d/kuvasz"
install -d -m 755 "$stage/etc/kuvasz"
install -D -m 644 LICENSE "$stage/usr/share/doc/kuvasz/copyright"
install -D -m 644 README.md "$stage/usr/share/doc/kuvasz/README.md"
install -D -m 644 CHANGELOG.md "$stage/usr/share/doc/kuvasz/CHANGELOG.md"
install -m 644 config/map.yaml "$stage/usr/share/doc/kuvasz/map.yaml"

printf '/etc/logrotate.d/kuvasz\n' > "$stage/DEBIAN/conffiles"
for script in postinst prerm postrm; do
  install -m 755 "deploy/deb/$script" "$stage/DEBIAN/$script"
done
cat > "$stage/DEBIAN/control" <<CONTROL
Package: kuvasz
Version: $version
Architecture: $arch
Section: database
Priority: optional
Maintainer: kuvasz <kuvasz@localhost>
Installed-Size: $(du -sk "$stage" | cut -f1)
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), openjdk-17-jre-headless | openjdk-21-jre-headless | openjdk-25-jre-headless, adduser
Suggests: logrotate
Description: Many PostgreSQL databases into one Apache Iceberg lake
 kuvasz follows the changes of PostgreSQL databases by logical replication and brings them, exactly once, into
 tables of Apache Iceberg, which any engine reads.
CONTROL

install -d "$out"
package=$out/kuvasz_${version}_${arch}.deb
dpkg-deb --root-owner-group --build "$stage" "$package" >&2
printf '%s\n' "$package"
