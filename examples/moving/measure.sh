#!/usr/bin/env bash
# Moves one of ten partitions of a keyspace without replicas to another node while clients read and write, and back: how long it takes, and what clients notice.
#   examples/moving/measure.sh [RECORDS] [PROGRAM]
# A data center of two nodes, of which the second was added, and another of one node run on this machine, with their data in a temporary folder. DURATION: seconds of load in each round, 20 unless said.
set -euo pipefail
records=${1:-1000000}
program=${2:-target/release/rheostat}
seconds=${DURATION:-20}
folder=$(mktemp -d)
cat > "$folder/cluster.toml" <<'TOML'
cluster = "moving"
partitions = 10
base_port = 28600
folder = "moving"

[[data_center]]
name = "east"
[[data_center.node]]
partitions = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
[[data_center.node]]
added = true

[[data_center]]
name = "west"

[[keyspace]]
name = "default"
protocol = "causal"
TOML
cluster() { "$program" ctl cluster "$1" "$folder/cluster.toml" > "$folder/cluster.log" 2>&1 || { cat "$folder/cluster.log" >&2; exit 1; }; }
end() { "$program" ctl cluster down "$folder/cluster.toml" > /dev/null 2>&1 || true; rm -rf "$folder"; }
trap end EXIT
load() { "$program" bench --json "$folder/$1.json" ycsb a --records "$records" --fields 1 --field-length 100 --distribution uniform --resp 127.0.0.1:28600 "${@:2}" > "$folder/$1.txt" 2> "$folder/$1.err" || { cat "$folder/$1.err" >&2; exit 1; }; }
seats() { "$program" ctl -a 127.0.0.1:28601 seats "$@"; }

cluster up
echo "== $records records of 100 bytes are loaded"
load fill --duration 1
echo "   a partition has $(du -sm "$folder"/moving/east-1/data/default/p0 2>/dev/null | cut -f1) MB on disk"
from=east-1 to=east-2
for round in 1 2 3 4; do
    load "alone$round" --no-load --duration "$seconds"
    load "beside$round" --no-load --duration "$seconds" & loading=$!
    sleep 4
    echo "== round $round: $from -> $to"
    seats move default 0 "$from" "$to"
    wait $loading
    for which in alone beside; do echo "-- clients $which:"; cat "$folder/$which$round.txt"; done
    read -r from to <<< "$to $from"
done
