#!/usr/bin/env bash
# How long a node with many keys takes to start, and what they take in memory: one node, values of 100 bytes, each key written once, as fast as it goes.
#
#     examples/starts/measure.sh PROGRAM [KEYS [PROTOCOL [PORT]]]   by default a million keys of causal at port 7990
#
# It needs redis-cli and 300 bytes of disk for each key. Between the last write and the kill nobody asks anything for IDLE seconds (3).
set -euo pipefail
[ $# -ge 1 ] && [ $# -le 4 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
command -v redis-cli > /dev/null || { echo "measure.sh: redis-cli is missing: apt-get install redis-tools"; exit 1; }
program=$1 keys=${2:-1000000} protocol=${3:-causal} port=${4:-7990}
folder=$(mktemp -d)
node=
trap '[ -z "$node" ] || { kill -9 "$node" && wait "$node"; } 2> /dev/null || true; rm -rf "$folder"' EXIT
printf 'cluster = "starts"\nnode = "a"\ndata_center = "a"\ndata_dir = "data"\n[listen]\nresp = "127.0.0.1:%s"\n[[keyspace]]\nname = "k"\nprotocol = "%s"\n' \
  "$port" "$protocol" > "$folder/node.toml"

# Starts the node, and says after how long it answers with a value, or with the absence of one.
start() {
  local began=$(date +%s%N)
  "$program" serve -c "$folder/node.toml" >> "$folder/log" 2>&1 &
  node=$!
  until [ "$(redis-cli -p "$port" EXISTS "key:$(printf %012d "$keys")" 2> /dev/null)" = "$1" ]; do
    kill -0 "$node" 2> /dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.02
  done
  echo "$2: answers after $(( ($(date +%s%N) - began) / 1000000 )) ms"
}

resident() { awk '/^VmRSS/ { printf "resident: %d MB\n", $2 / 1024 }' "/proc/$node/status"; }

start 0 "empty"
value=$(head -c 100 /dev/zero | tr '\0' x)
began=$(date +%s%N)
awk -v keys="$keys" -v value="$value" 'BEGIN { for (key = 1; key <= keys; key++) printf "SET key:%012d %s\r\n", key, value }' | redis-cli -p "$port" --pipe > /dev/null
echo "$keys keys written in $(( ($(date +%s%N) - began) / 1000000 )) ms"
sleep "${IDLE:-3}"
resident
kill -9 "$node"
wait "$node" 2> /dev/null || true
start 1 "after kill -9"
resident
kill "$node"
wait "$node" || true
start 1 "after SIGTERM"
