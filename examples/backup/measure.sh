#!/usr/bin/env bash
# Backup and restore of a million keys of 100 bytes, and what a backup costs the clients that write meanwhile.
#   examples/backup/measure.sh [RECORDS] [PROGRAM]
# Two clusters of three and of two data centers run on this machine, one after the other, with their data in a temporary folder. Nothing is measured while the other one runs.
set -euo pipefail
records=${1:-1000000}
program=${2:-target/release/rheostat}
seconds=${DURATION:-30}
folder=$(mktemp -d)
cluster() { "$program" ctl cluster "$1" "$folder/$2.toml" > "$folder/cluster.log" 2>&1 || { cat "$folder/cluster.log" >&2; exit 1; }; }
describe() { # NAME PORT PARTITIONS DATA-CENTER...
    local name=$1 port=$2 partitions=$3; shift 3
    { echo "cluster = \"$name\""; echo "partitions = $partitions"; echo "base_port = $port"; echo "folder = \"$name\""
      for data_center in "$@"; do echo; echo '[[data_center]]'; echo "name = \"$data_center\""; done
      echo; echo '[[keyspace]]'; echo 'name = "default"'; echo 'protocol = "causal"'; } > "$folder/$name.toml"
}
end() { for name in old new; do [ -f "$folder/$name.toml" ] && "$program" ctl cluster down "$folder/$name.toml" > /dev/null 2>&1 || true; done; rm -rf "$folder"; }
trap end EXIT
load() { "$program" bench --json "$folder/$1.json" ycsb a --records "$records" --fields 1 --field-length 100 --distribution uniform --resp 127.0.0.1:28400 "${@:2}" > "$folder/$1.txt" 2>/dev/null; }
throughput() { grep -m1 -i 'per second\|ops/s\|/s' "$folder/$1.txt" || tail -5 "$folder/$1.txt"; }

describe old 28400 4 east west eu
describe new 28500 6 north south
cluster up old
echo "== $records records of 100 bytes are loaded"
load fill --duration 1
for round in 1 2 3; do
    load "alone$round" --no-load --duration $seconds
    load "beside$round" --no-load --duration $seconds --warm-up 2 & loading=$!
    sleep 3
    rm -rf "$folder/backup"
    began=$(date +%s.%N)
    "$program" ctl -a 127.0.0.1:28401 backup "$folder/backup" 2> /dev/null | tail -1
    taken=$(echo "$(date +%s.%N) - $began" | bc)
    wait $loading
    echo "== round $round: backup took $taken s, $(du -sm "$folder/backup" | cut -f1) MB on disk"
    echo "   clients alone:  $(throughput "alone$round")"
    echo "   clients beside: $(throughput "beside$round")"
done
began=$(date +%s.%N)
"$program" ctl backup verify "$folder/backup" | tail -1
echo "== verify took $(echo "$(date +%s.%N) - $began" | bc) s"
cluster down old
cluster up new
began=$(date +%s.%N)
"$program" ctl -a 127.0.0.1:28501 restore "$folder/backup" --wait 600 2> /dev/null
echo "== restore took $(echo "$(date +%s.%N) - $began" | bc) s with all checks"
