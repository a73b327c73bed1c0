#!/usr/bin/env bash
# What object stores and archives cost: backups to a folder and to a store of S3's kind in turn, clients with and without an archiver in turn, bytes for each change, and a restore to a moment.
#   examples/backup/archive.sh [RECORDS] [PROGRAM] [STORE]
# STORE is the example `bucket` of crates/objects. A cluster of three data centers and the store run on this machine, with their data in a temporary folder.
set -euo pipefail
records=${1:-1000000}
program=${2:-target/release/rheostat}
store=${3:-target/release/examples/bucket}
seconds=${DURATION:-20}
folder=$(mktemp -d)
cluster() { "$program" ctl cluster "$1" "$folder/cluster.toml" > "$folder/cluster.log" 2>&1 || { cat "$folder/cluster.log" >&2; exit 1; }; }
{ echo 'cluster = "measured"'; echo 'partitions = 4'; echo 'base_port = 28400'; echo 'folder = "nodes"'
  for data_center in east west eu; do echo; echo '[[data_center]]'; echo "name = \"$data_center\""; done
  for keyspace in default noon; do echo; echo '[[keyspace]]'; echo "name = \"$keyspace\""; echo 'protocol = "causal"'; echo 'history_ms = 60000'; done; } > "$folder/cluster.toml"
store_pid='' archiver=''
end() {
    [ -z "$archiver" ] || kill "$archiver" 2> /dev/null || true
    [ -z "$store_pid" ] || kill "$store_pid" 2> /dev/null || true
    "$program" ctl cluster down "$folder/cluster.toml" > /dev/null 2>&1 || true
    rm -rf "$folder"
}
trap end EXIT
ctl() { "$program" ctl -a 127.0.0.1:28401 "$@"; }
load() { "$program" bench --json "$folder/$1.json" ycsb a --records "$records" --fields 1 --field-length 100 --distribution uniform --resp 127.0.0.1:28400 "${@:2}" > "$folder/$1.txt" 2>/dev/null; }
throughput() { grep -m1 -i 'per second\|ops/s\|/s' "$folder/$1.txt" || tail -5 "$folder/$1.txt"; }
now() { date +%s.%N; }
since() { echo "$(now) - $1" | bc; }

cluster up
mkfifo "$folder/input"
"$store" 28490 measured < "$folder/input" > "$folder/store.txt" & store_pid=$!
exec 9> "$folder/input"
sleep 1
export $(cat "$folder/store.txt")
echo "== $records records of 100 bytes are loaded"
load fill --duration 1
for round in 1 2 3; do
    began=$(now); ctl backup "$folder/backup$round" -k default > /dev/null 2>&1; echo "== round $round: a backup to a folder took $(since "$began") s, $(du -sm "$folder/backup$round" | cut -f1) MB"
    began=$(now); ctl backup "s3://measured/backup$round" -k default > /dev/null 2>&1; echo "           to the store $(since "$began") s"
    began=$(now); ctl backup verify "$folder/backup$round" > /dev/null; echo "           verify in the folder $(since "$began") s"
    began=$(now); ctl backup verify "s3://measured/backup$round" > /dev/null; echo "           in the store $(since "$began") s"
    rm -rf "$folder/backup$round"
done
for round in 1 2 3; do
    load "alone$round" --no-load --duration "$seconds" --warm-up 2
    "$program" ctl -a 127.0.0.1:28401 archive "$folder/archive" -k default --every 5s 2> "$folder/archiver$round.log" & archiver=$!
    until grep -q 'full backup as of\|goes on after' "$folder/archiver$round.log"; do
        kill -0 "$archiver" 2> /dev/null || { cat "$folder/archiver$round.log" >&2; exit 1; }
        sleep 0.2
    done
    sleep 3
    load "beside$round" --no-load --duration "$seconds" --warm-up 2
    cpu=$(awk '{ print ($14 + $15) / 100 }' "/proc/$archiver/stat")
    memory=$(awk '/VmHWM/ { print $2 / 1024 }' "/proc/$archiver/status")
    sleep 6
    kill -TERM "$archiver"; wait "$archiver" || true; archiver=''
    echo "== round $round: the archiver took $cpu s of processor time, and $memory MB at most"
    echo "   clients alone:            $(throughput "alone$round")"
    echo "   clients beside archiver:  $(throughput "beside$round")"
    grep -i 'gap\|stands\|cannot' "$folder/archiver$round.log" || true
done
ctl archive list "$folder/archive"
began=$(now); ctl backup verify "$folder/archive" --json > "$folder/verified.json"; echo "== verify took $(since "$began") s"
python3 - "$folder" << 'END'
import json, os, sys
folder = sys.argv[1]
changes = json.load(open(f"{folder}/verified.json"))["changes"]
size = sum(os.path.getsize(f"{folder}/archive/{name}") for name in os.listdir(f"{folder}/archive") if name.startswith("changes-"))
print(f"== {changes} changes, {size / 1e6:.1f} MB: {size / changes:.1f} bytes each, of which the value has 100 or so")
END
last=$(ctl archive list "$folder/archive" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["spans"][-1]["to_ms"])')
began=$(now); ctl restore "$folder/archive" --to "$last" -k default=noon --wait 600; echo "== restore to the last moment took $(since "$began") s with all checks"
