#!/usr/bin/env bash
# The simulator in a page, as a folder of files that any web server can serve: ui/simulator/build.sh [--files] [folder]
#
# The folder is target/simulator unless one is named. What it needs is Rust for the target wasm32-unknown-unknown:
#   with rustup:   rustup target add wasm32-unknown-unknown
#   on Debian:     apt-get install rustc-web rust-web-src     (1.93 or newer; the standard library is then compiled as well), and a linker: lld, or the one that comes with rustup's toolchain
# The first that is there is used. --files copies the page's files only, beside a module that is there already. As root on Debian, PAGE_INSTALL=1 installs the packages. Nothing else is downloaded but crates, by cargo.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=wasm32-unknown-unknown
base=$(realpath -m "${CARGO_TARGET_DIR:-target}")
files=
if [ "${1:-}" = --files ]; then
  files=only
  shift
fi
out=$(realpath -m "${1:-$base/simulator}")
log() { echo "page: $*"; }

copy() {
  mkdir -p "$out/js" "$out/simulator"
  install -m 644 ui/simulator/index.html ui/simulator/simulator.css ui/console.css ui/icon.svg "$out/"
  install -m 644 ui/simulator/js/*.js "$out/simulator/"
  # What the console's pages are made of.
  install -m 644 ui/js/dom.js ui/js/diagram.js ui/js/format.js ui/js/theme.js "$out/js/"
}
if [ "$files" = only ]; then
  copy
  exit
fi

# A linker for WebAssembly: rustup's toolchains bring one, Debian's do not.
linker() {
  local found
  found=$(rustc --print sysroot 2> /dev/null)/lib/rustlib/$(rustc -vV 2> /dev/null | sed -n 's/^host: //p')/bin/rust-lld
  [ -x "$found" ] || found=$(command -v rust-lld wasm-ld ld.lld | head -n 1 || true)
  [ -n "$found" ] || found=$(ls /usr/bin/wasm-ld-* 2> /dev/null | sort -V | tail -n 1 || true)
  echo "$found"
}

arguments=(rustc --target "$target" --profile sim -p rheostat-page --lib --crate-type cdylib --locked)
has_target() { [ -d "$(rustc --print sysroot 2> /dev/null)/lib/rustlib/$target/lib" ]; }
debian() { [ -x /usr/bin/rustc ] && [ -f /usr/lib/rustlib/src/rust/library/Cargo.lock ]; }
if ! has_target && ! debian && [ "${PAGE_INSTALL:-}" = 1 ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  log "installs rustc-web and rust-web-src"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rustc-web rust-web-src > /dev/null
fi
if has_target; then
  log "$(rustc --version), which has $target"
elif debian; then
  export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
  linker=$(linker)
  [ -n "$linker" ] || { log "there is no linker for WebAssembly: apt-get install lld"; exit 3; }
  export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker
  # The standard library's sources are there, its compiled form for this target is not.
  arguments+=(-Zbuild-std=std,panic_abort)
  log "$($RUSTC --version), with the standard library from its sources"
else
  log "there is no Rust for $target: rustup target add $target, or on Debian: apt-get install rustc-web rust-web-src lld"
  exit 3
fi
# Names of functions are nothing that a page needs.
cargo "${arguments[@]}" -j "${PAGE_JOBS:-2}" -- -C strip=symbols

copy
install -m 644 "$base/$target/sim/rheostat_page.wasm" "$out/simulator.wasm"
log "$out: $(du -sk "$out" | cut -f 1) KiB, simulator.wasm $(wc -c < "$out/simulator.wasm") bytes, $(gzip -9 -c "$out/simulator.wasm" | wc -c) compressed"
log "to look at it: python3 -m http.server --bind 127.0.0.1 --directory $out 8000"
