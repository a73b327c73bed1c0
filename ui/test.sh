#!/usr/bin/env bash
# The console's tests in a real browser, against clusters that they start and end: ui/test.sh
#
# The program is what RHEOSTAT names, else target/release/rheostat, else target/debug/rheostat; the browser what CHROMIUM names, else chromium. Where there is none, and this is root on a Debian
# whose package lists are there, the package is installed. UI_SCREENSHOTS names a folder for pictures of every page. The simulator's page is tested where ui/simulator/build.sh has built it
# from the sources as they are; UI_ONLY=simulator tests nothing else, and needs no program. The last line has the counts.
set -euo pipefail
rheostat=${RHEOSTAT:+$(realpath -m "$RHEOSTAT")}
cd "$(dirname "$0")"
for built in ../target/release/rheostat ../target/debug/rheostat; do
  [ -n "$rheostat" ] || [ ! -x "$built" ] || rheostat=$built
done
skip() {
  echo "ui: not tested, for want of $1"
  echo "ui: 0 passed, 0 failed, 0 skipped"
  exit 0
}
[ -x "$rheostat" ] || [ "${UI_ONLY:-}" = simulator ] || { echo "ui: there is no rheostat program (RHEOSTAT=${rheostat:-}); build it: cargo build"; exit 1; }
export RHEOSTAT=$(realpath -m "${rheostat:-rheostat}")
{ command -v npm > /dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2> /dev/null; } || skip "Node 20 with npm"
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$CHROMIUM" ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null 2>&1 || true
  CHROMIUM=$(command -v chromium || true)
fi
[ -n "$CHROMIUM" ] || skip "a Chromium"
export CHROMIUM
cd test
if ! cmp -s package-lock.json node_modules/installed; then
  npm ci --silent --no-audit --no-fund 2> /dev/null || skip "what it needs from npm's registry"
  cp package-lock.json node_modules/installed
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0 passed=0 failed=0 skipped=0
count() { { grep -Eo "^(#|ℹ) $1 [0-9]+" "$log" || true; } | grep -Eo '[0-9]+$' | head -n 1; }
try() {
  timeout 600 node --test --test-reporter=spec "$1" 2>&1 | tee "$log" || status=$?
  local of passes
  passes=$(count pass)
  [ "${passes:-0}" -gt 0 ] || status=1
  for of in fail cancelled; do failed=$((failed + $(count "$of" || true) + 0)); done
  passed=$((passed + ${passes:-0})) skipped=$((skipped + $(count skipped || true) + 0))
}
[ "${UI_ONLY:-}" = simulator ] || try console.test.js

# The simulator's page: its files may be newer than what was built, its sources in Rust may not.
export SIMULATOR_PAGE=${SIMULATOR_PAGE:-$(realpath -m "../../${CARGO_TARGET_DIR:-target}/simulator")}
built=$SIMULATOR_PAGE/simulator.wasm
if [ -f "$built" ] && [ -z "$(cd ../../crates && find clock core group protocols counters storage stack checkers sim page \( -path '*/src/*' -o -name '*.plan' -o -name Cargo.toml \) -type f -newer "$built" -print -quit)" ]; then
  ../simulator/build.sh --files "$SIMULATOR_PAGE"
  try simulator.test.js
else
  echo "ui: the simulator's page is not tested: it is not built from these sources (ui/simulator/build.sh)"
  skipped=$((skipped + 1))
fi
echo "ui: $passed passed, $failed failed, $skipped skipped"
exit $status
