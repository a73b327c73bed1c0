#!/usr/bin/env bash
# The console's tests in a real browser, against clusters that they start and end: ui/test.sh
#
# The program is what RHEOSTAT names, else target/release/rheostat, else target/debug/rheostat; the browser what CHROMIUM names, else chromium. Where there is none, and this is root on a Debian
# whose package lists are there, the package is installed. UI_SCREENSHOTS names a folder for pictures of every page. The last line has the counts.
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
[ -x "$rheostat" ] || { echo "ui: there is no rheostat program (RHEOSTAT=${rheostat:-}); build it: cargo build"; exit 1; }
export RHEOSTAT=$(realpath "$rheostat")
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
status=0
timeout 600 node --test --test-reporter=spec console.test.js 2>&1 | tee "$log" || status=$?
count() { { grep -Eo "^(#|ℹ) $1 [0-9]+" "$log" || true; } | grep -Eo '[0-9]+$' | head -n 1; }
passed=$(count pass) failed=$(count fail) cancelled=$(count cancelled) skipped=$(count skipped)
echo "ui: ${passed:-0} passed, $((${failed:-0} + ${cancelled:-0})) failed, ${skipped:-0} skipped"
[ "${passed:-0}" -gt 0 ] || status=1
exit $status
