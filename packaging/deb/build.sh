#!/usr/bin/env bash
# Makes a Debian package from a rheostat binary, with dpkg-deb and nothing else:
#   packaging/deb/build.sh [--binary FILE] [--out DIR] [--maintainer 'NAME <ADDRESS>']
# Prints the package's path. Everything in it but the binary is made by the binary or stands in this repository.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
binary=$root/target/dist/rheostat out=$root/target/deb maintainer='Rheostat maintainers <maintainers@rheostat.invalid>'
while [ $# -gt 0 ]; do
  case "$1" in
    --binary) binary=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --maintainer) maintainer=$2; shift 2 ;;
    *) echo "build.sh: unknown argument $1" >&2; exit 2 ;;
  esac
done
[ -x "$binary" ] || { echo "build.sh: there is no program $binary; build it (cargo build --profile dist --features rheostat/cassandra), or name one with --binary" >&2; exit 1; }

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 0755 "$tree"
umask 022
file() { install -D -m "$1" "$2" "$tree/$3"; }

version=$("$binary" --version | awk '{ print $2 }')-1
file 0755 "$binary" usr/bin/rheostat
# Without strip the package is larger, and works.
if command -v strip > /dev/null; then strip --strip-unneeded --remove-section=.comment --remove-section=.note "$tree/usr/bin/rheostat"; fi

file 0644 "$here/rheostat.service" lib/systemd/system/rheostat.service
file 0644 "$here/rheostat-archive.service" lib/systemd/system/rheostat-archive.service
file 0644 "$here/node.toml" etc/rheostat/node.toml

mkdir -p "$tree/usr/share/man/man1" "$tree/usr/share/rheostat"
"$binary" man "$tree/usr/share/man/man1" > /dev/null
gzip -9n "$tree"/usr/share/man/man1/*.1
"$binary" monitoring "$tree/usr/share/rheostat/monitoring" > /dev/null
completions() { mkdir -p "$tree/$(dirname "$2")" && "$binary" completions "$1" > "$tree/$2"; }
completions bash usr/share/bash-completion/completions/rheostat
completions zsh usr/share/zsh/vendor-completions/_rheostat
completions fish usr/share/fish/vendor_completions.d/rheostat.fish

doc=usr/share/doc/rheostat
file 0644 "$here/copyright" $doc/copyright
for name in us-east us-west eu demo; do file 0644 "$root/examples/$name.toml" "$doc/examples/$name.toml"; done
# The date of the last change, so that the same sources give the same package.
date=$(date -R -u -d "@${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2> /dev/null || echo 0)}")
printf 'rheostat (%s) unstable; urgency=medium\n\n  * Made from the sources; CHANGELOG.md says what changed.\n\n -- %s  %s\n' "$version" "$maintainer" "$date" |
  gzip -9n > "$tree/$doc/changelog.Debian.gz"
gzip -9nc "$root/CHANGELOG.md" > "$tree/$doc/changelog.gz"

# The oldest C library that has every symbol the program asks for.
libc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$tree/usr/bin/rheostat" | sort -uV | tail -1)
mkdir -p "$tree/DEBIAN"
cat > "$tree/DEBIAN/control" << CONTROL
Package: rheostat
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size "$tree" | cut -f1)
Depends: adduser, libc6 (>= ${libc#GLIBC_}), libgcc-s1 (>= 4.2)
Recommends: chrony | time-daemon, ca-certificates
Suggests: prometheus, redis-tools
Section: database
Priority: optional
Description: geo-replicated key-value store with a dial for consistency
 Rheostat is a key-value store for several regions that speaks Redis' protocol
 and gRPC. Each region holds all data and answers by itself. Each request says
 how much consistency it needs, and waits for that only.
 .
 This package has the server, its command line and a systemd unit that is not
 started before the administrator says which cluster the node is of.
CONTROL
echo /etc/rheostat/node.toml > "$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do file 0755 "$here/$script" "DEBIAN/$script"; done
(cd "$tree" && find . -type f -not -path './DEBIAN/*' -not -path './etc/*' -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) > "$tree/DEBIAN/md5sums"
# Times as of the last change too.
find "$tree" -exec touch --no-dereference --date="$date" {} +

mkdir -p "$out"
package=$out/rheostat_${version}_$(dpkg --print-architecture).deb
SOURCE_DATE_EPOCH=$(date -d "$date" +%s) dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" > /dev/null
echo "$package"
