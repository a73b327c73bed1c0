#!/usr/bin/env bash
# The clients' tests, against a cluster of three data centers that this starts and ends: clients/test.sh [python] [go] [typescript] [java]
#
# Without a name, all; a language whose toolchain is not there is passed over, with one line. The program is what RHEOSTAT names, else target/release/rheostat, else
# target/debug/rheostat. What is needed beside is installed from the languages' registries, into folders that git ignores. The last line has the counts.
set -euo pipefail
rheostat=${RHEOSTAT:+$(realpath -m "$RHEOSTAT")}
cd "$(dirname "$0")"
here=$PWD
for built in ../target/release/rheostat ../target/debug/rheostat; do
  [ -n "$rheostat" ] || [ ! -x "$built" ] || rheostat=$built
done
[ -x "$rheostat" ] || { echo "clients: there is no rheostat program (RHEOSTAT=${rheostat:-}); build it: cargo build"; exit 1; }
export RHEOSTAT=$(realpath "$rheostat")
export RHEOSTAT_PASSWORD='open sesame'
[ $# -gt 0 ] || set -- python go typescript java

./check.sh

export RHEOSTAT_SUITE=$(mktemp -d)
trap '"$RHEOSTAT" ctl cluster down "$RHEOSTAT_SUITE/cluster.toml" > /dev/null 2>&1 || true; rm -rf "$RHEOSTAT_SUITE"' EXIT
for try in 1 2 3 4 5; do
  # Below the ports of the other tests: those of the console's begin at 8000, those of cargo's at 10000.
  export RHEOSTAT_PORT=$((7500 + RANDOM % 45 * 10))
  sed "s/BASE_PORT/$RHEOSTAT_PORT/" suite/cluster.toml > "$RHEOSTAT_SUITE/cluster.toml"
  "$RHEOSTAT" ctl cluster up "$RHEOSTAT_SUITE/cluster.toml" > "$RHEOSTAT_SUITE/up" 2>&1 && break
  [ $try -lt 5 ] || { cat "$RHEOSTAT_SUITE/up"; exit 1; }
  "$RHEOSTAT" ctl cluster down "$RHEOSTAT_SUITE/cluster.toml" > /dev/null 2>&1 || true
done

# What a language lacks here, in words; nothing if it has all.
lacks() {
  case $1 in
    python) python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2> /dev/null || echo "Python 3.10 with venv" ;;
    go) [[ $(go env GOVERSION 2> /dev/null) =~ ^go1\.(2[4-9]|[3-9][0-9]) ]] || echo "Go 1.24" ;;
    typescript) { command -v npm > /dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2> /dev/null; } || echo "Node 20 with npm" ;;
    java) { command -v mvn > /dev/null && command -v javac > /dev/null; } || echo "a JDK (17) and Maven" ;;
    *) echo "clients: there is no client called $1" >&2; exit 2 ;;
  esac
}

passed=0 failed=0 skipped=0 status=0
# The sum of the numbers in what the log has of an expression.
count() { { grep -Eo "$1" "$RHEOSTAT_SUITE/log" || true; } | sed 's/[^0-9]//g' | awk '{ n += $1 } END { print n + 0 }'; }
for language in "$@"; do
  lack=$(lacks "$language")
  if [ -n "$lack" ]; then
    echo "clients/$language: not tested, for want of $lack"
    continue
  fi
  began=$SECONDS
  ("$here/$language/test.sh" 2>&1 || echo "clients/$language FAILED") | tee "$RHEOSTAT_SUITE/log"
  ! grep -q "^clients/$language FAILED" "$RHEOSTAT_SUITE/log" || status=1
  case $language in
    python) p=$(count '[0-9]+ passed') f=$(count '[0-9]+ (failed|error)') s=$(count '[0-9]+ skipped') ;;
    go) p=$(grep -c '^--- PASS' "$RHEOSTAT_SUITE/log" || true) f=$(grep -c '^--- FAIL' "$RHEOSTAT_SUITE/log" || true) s=$(grep -c '^--- SKIP' "$RHEOSTAT_SUITE/log" || true) ;;
    typescript) p=$(count '^(#|ℹ) pass [0-9]+') f=$(count '^(#|ℹ) (fail|cancelled) [0-9]+') s=$(count '^(#|ℹ) skipped [0-9]+') ;;
    java) p=$(count 'suite: [0-9]+ passed') f=$(count ', [0-9]+ failed') s=$(count ', [0-9]+ skipped') ;;
  esac
  [ "$p" -gt 0 ] || status=1
  echo "clients/$language: $p passed, $f failed, $s skipped, in $((SECONDS - began)) s"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "clients: $passed passed, $failed failed, $skipped skipped"
exit $status
