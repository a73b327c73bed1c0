#!/usr/bin/env bash
# An upgrade under load: builds an earlier state of the repository, starts a cluster of it, and replaces its nodes by the state that is here, one after the other, while clients go on and their history is checked (docs/nemesis.md).
#
#     crates/nemesis/upgrade.sh [COMMIT [OPTION...]]   options of `rheostat nemesis`; by default causal, stop and kill, 80 seconds
#
# COMMIT is the newest tag by default, and without one the last state that did not speak the newest format between nodes. What is built of it stays in target/upgrade, for each profile. Both builds are of Cargo's profile PROFILE (dev).
set -euo pipefail
cd "$(dirname "$0")/../.."
profile=${PROFILE:-dev}
case ${1:-} in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' crates/nemesis/upgrade.sh; exit ;;
  -*) echo "a commit comes first: crates/nemesis/upgrade.sh COMMIT $*" >&2; exit 2 ;;
esac
greeting=crates/server/src/peer/greeting.rs
newest=$(grep -o 'const FORMATS.*newest: [0-9]*' "$greeting" | grep -o '[0-9]*$')
before() { git log --reverse --format=%h^ -S "newest: $newest" -- "$greeting" | head -1; }
asked=${1:-$(git describe --tags --abbrev=0 2> /dev/null || before)}
[ -n "$asked" ] || { echo "which commit? the history here does not reach back to an earlier format" >&2; exit 2; }
commit=$(git rev-parse --verify --quiet --short=12 "$asked^{commit}") || { echo "$asked: no such commit here" >&2; exit 2; }
shift || true
[ $# -gt 0 ] || set -- causal --faults stop,kill --duration 80 --every 5
built=$([ "$profile" = dev ] && echo debug || echo "$profile")
old=$PWD/target/upgrade/$commit-$built
if [ ! -x "$old/rheostat" ]; then
  echo "building $commit ($(git log -1 --format=%s "$commit")); this takes minutes"
  mkdir -p "$old/source"
  git archive "$commit" | tar -x -C "$old/source"
  CARGO_TARGET_DIR=$PWD/target/upgrade/build cargo build --locked --quiet --manifest-path "$old/source/Cargo.toml" --profile "$profile" --bin rheostat
  cp "target/upgrade/build/$built/rheostat" "$old/rheostat"
  rm -rf "$old/source"
fi
cargo build --quiet --profile "$profile" --bin rheostat
"${CARGO_TARGET_DIR:-target}/$built/rheostat" nemesis "$@" --from "$old/rheostat"
