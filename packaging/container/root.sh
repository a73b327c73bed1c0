#!/usr/bin/env bash
# The root folder of the container image: packaging/container/root.sh BINARY FOLDER
set -euo pipefail
binary=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
install -D -m 0755 "$binary" "$folder/usr/bin/rheostat"
if command -v strip > /dev/null; then strip --strip-unneeded "$folder/usr/bin/rheostat"; fi
# What it is linked to, and what the C library loads by itself to find hosts by name.
libraries=$(ldd "$binary" | awk '/=> \// { print $3 } $1 ~ /^\// { print $1 }')
libc=$(echo "$libraries" | grep '/libc\.so')
for library in $libraries "${libc%/*}/libnss_dns.so.2" "${libc%/*}/libnss_files.so.2" "${libc%/*}/libresolv.so.2"; do
  install -D -m 0755 "$(realpath "$library")" "$folder$library"
done
# Authorities of object stores, for `ctl backup` and `ctl archive`.
authorities=/etc/ssl/certs/ca-certificates.crt
if [ -e "$authorities" ]; then install -D -m 0644 "$authorities" "$folder$authorities"; else echo "root.sh: without $authorities: object stores need --s3-authority" >&2; fi
install -D -m 0644 "$here/node.toml" "$folder/etc/rheostat/node.toml"
echo 'rheostat:x:65532:65532:Rheostat node:/var/lib/rheostat:/usr/bin/rheostat' > "$folder/etc/passwd"
echo 'rheostat:x:65532:' > "$folder/etc/group"
echo 'hosts: files dns' > "$folder/etc/nsswitch.conf"
install -d -m 0700 "$folder/var/lib/rheostat"
install -d -m 1777 "$folder/tmp"
# A volume that is made from this folder gets its owner.
if [ "$(id -u)" = 0 ]; then chown 65532:65532 "$folder/var/lib/rheostat"; fi
