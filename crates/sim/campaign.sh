#!/usr/bin/env bash
# A long campaign of the simulator: every protocol, with and without counters, all profiles in turn, and values that expire, in chunks. It can be ended at any moment and goes on where it was.
#
#     crates/sim/campaign.sh FOLDER SEEDS [PROGRAM]   until each protocol has SEEDS seeds of each load
#     crates/sim/campaign.sh FOLDER                   what has been run, as a table
#
# One that is under way is in crates/sim/campaign: docs/simulation.md says on which state. FOLDER/runs.tsv has a line for each chunk that ended; FOLDER/broken has what was printed of each one with a broken promise, plan and replay among it.
# FIRST (1) is the first seed. CHUNK (1000) seeds are run at a time, by JOBS (2) threads; LOADS (keys counters expiring) names the loads. A run that has no end is ended by what it takes: MEMORY_MB (4000).
set -euo pipefail
[ $# -ge 1 ] && [ $# -le 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
folder=$1 seeds=${2:-0} program=${3:-rheostat}
runs=$folder/runs.tsv
chunk=${CHUNK:-1000} begin=${FIRST:-1}

table() {
  echo "| protocol | load | seeds | virtual hours | events | operations of clients | seeds a second | broken promises |"
  echo "|---|---|---|---|---|---|---|---|"
  sort "$runs" | awk -F '\t' '
    function row(name, load, n, h, e, o, s, b) { printf "| %s | %s | %d | %.1f | %.1f M | %d | %.0f | %s |\n", name, load, n, h, e / 1e6, o, (s > 0 ? n / s : 0), (b ? b : "none") }
    { key = $1 FS $2; if (!(key in n)) order[++keys] = key; n[key] += $4; h[key] += $5; e[key] += $6; o[key] += $7; b[key] += $8; s[key] += $9 }
    END {
      for (i = 1; i <= keys; i++) { k = order[i]; split(k, f, FS); row("`" f[1] "`", f[2], n[k], h[k], e[k], o[k], s[k], b[k]); N += n[k]; H += h[k]; E += e[k]; O += o[k]; B += b[k]; S += s[k] }
      row("all", "", N, H, E, O, S, B)
    }'
}

if [ "$seeds" = 0 ]; then
  [ -s "$runs" ] || { echo "$runs: nothing has been run" >&2; exit 1; }
  table
  exit
fi
[[ $seeds =~ ^[1-9][0-9]*$ && $chunk =~ ^[1-9][0-9]*$ && $begin =~ ^[1-9][0-9]*$ ]] || { echo "SEEDS, FIRST and CHUNK are numbers above 0" >&2; exit 2; }
command -v "$program" > /dev/null || { echo "$program: no such program; cargo build --release makes target/release/rheostat" >&2; exit 2; }
mkdir -p "$folder/broken"
touch "$runs"
ulimit -v $((${MEMORY_MB:-4000} * 1024))
protocols=$("$program" protocols | awk '/^[a-z]+$/')
for ((first = begin; first < begin + seeds; first += chunk)); do
  for protocol in $protocols; do
    for load in ${LOADS:-keys counters expiring}; do
      grep -q "^$protocol"$'\t'"$load"$'\t'"$first"$'\t' "$runs" && continue
      options=(--profile mixed)
      [ $load != counters ] || options+=(--counters)
      [ $load != expiring ] || options=(--profile expiring)
      out=$folder/now.txt
      began=$(date +%s.%N) broke=0
      "$program" sim --protocol "$protocol" --first "$first" --seeds "$chunk" --jobs "${JOBS:-2}" --stop-after 20 "${options[@]}" > "$out" 2>&1 || broke=$?
      line=$(grep -a -m1 ' seeds, .* broke a promise$' "$out") || { cat "$out" >&2; exit 1; }
      [ $broke = 0 ] || mv "$out" "$folder/broken/$protocol-$load-$first.txt"
      awk -v start="$began" -v end="$(date +%s.%N)" -v OFS='\t' -v protocol="$protocol" -v load="$load" -v first="$first" \
        '{ print protocol, load, first, $1, $3, $8, $10, $14, end - start }' <<< "$line" >> "$runs"
    done
  done
done
rm -f "$folder/now.txt"
table
