#!/usr/bin/env bash
# Stock YCSB against Redis and two keyspaces of Rheostat, in turns, on this machine. `compare.sh --help` says how.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'TEXT'
compare.sh [WORKLOAD...]

Starts redis-server (appendfsync everysec) and a Rheostat node of one data center (durability interval, data on disk), both on loopback with data in a
temporary folder, loads each, and lets them take turns. Prints a table of medians. Default: workloads a b c d f; with rotx too, predicted snapshots.

Environment: RHEOSTAT the program (default: target/release/rheostat), ROUNDS (3), EACH_S seconds of a run (5), THREADS of the client (8),
RECORDS (10000), LAYOUT (keys, or value), TRANSPORT of Rheostat (resp, or grpc), PARTITIONS of Rheostat (1), PORT, the first of three (7650).
Needs redis-server, and what run.sh needs.
TEXT
  exit 0
fi

program=${RHEOSTAT:-$here/../../target/release/rheostat}
rounds=${ROUNDS:-3} each_s=${EACH_S:-5} threads=${THREADS:-8} records=${RECORDS:-10000} layout=${LAYOUT:-keys} transport=${TRANSPORT:-resp}
partitions=${PARTITIONS:-1} port=${PORT:-7650}
workloads=("$@")
[[ $# -gt 0 ]] || workloads=(a b c d f)
[[ -x $program ]] || { echo "compare.sh: there is no program $program; build it, or say where it is in RHEOSTAT" >&2; exit 2; }
command -v redis-server > /dev/null || { echo "compare.sh: redis-server is not installed" >&2; exit 2; }

folder=$(mktemp -d)
started=()
finish() {
  if [[ ${#started[@]} -gt 0 ]]; then
    kill "${started[@]}" 2> /dev/null || true
    wait "${started[@]}" 2> /dev/null || true
  fi
  rm -rf "$folder"
}
trap finish EXIT

cat > "$folder/node.toml" <<TOML
cluster = "ycsb"
node = "a"
data_center = "here"
partitions = $partitions
data_dir = "data"
[listen]
resp = "127.0.0.1:$port"
grpc = "127.0.0.1:$((port + 1))"
[[keyspace]]
name = "causal"
protocol = "causal"
[[keyspace]]
name = "eventual"
protocol = "eventual"
TOML
"$program" serve --config "$folder/node.toml" > "$folder/rheostat.log" 2>&1 &
started+=($!)
mkdir "$folder/redis"
redis-server --port $((port + 2)) --bind 127.0.0.1 --appendonly yes --appendfsync everysec --save "" --dir "$folder/redis" > "$folder/redis.log" 2>&1 &
started+=($!)

# Waits until a server of ours listens, by its process and port. If it has ended, another program may have the port.
await() {
  for _ in $(seq 100); do
    sleep 0.1
    kill -0 "$1" 2> /dev/null || break
    if (exec 3<> "/dev/tcp/127.0.0.1/$2") 2> /dev/null; then
      return
    fi
  done
  echo "compare.sh: the server for port $2 did not start; is the port free? PORT chooses others" >&2
  tail -n 20 "$folder"/*.log >&2
  exit 1
}
await "${started[0]}" "$port"
await "${started[1]}" $((port + 2))

# Processor time of a process so far, in ticks.
ticks() {
  sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

# Runs one phase against one contender; the results are in the file named last.
ycsb() {
  local phase=$1 workload=$2 contender=$3 output=$4
  local options=(-p "rheostat.fields=$layout" -p "recordcount=$records" -p hdrhistogram.percentiles=50,99 -threads "$threads")
  case $contender in
    redis) options+=(-p rheostat.server=redis -p "rheostat.hosts=127.0.0.1:$((port + 2))") ;;
    *)
      local at=$port
      [[ $transport == resp ]] || at=$((port + 1))
      options+=(-p "rheostat.keyspace=${contender%-*}" -p "rheostat.transport=$transport" -p "rheostat.hosts=127.0.0.1:$at")
      ;;
  esac
  [[ $contender != *-predicted ]] || options+=(-p rheostat.strategy=predicted)
  [[ $contender != *-coordinated ]] || options+=(-p rheostat.strategy=coordinated)
  [[ $phase == load ]] || options+=(-p operationcount=1000000000 -p "maxexecutiontime=$each_s")
  "$here/run.sh" "$phase" "$workload" "${options[@]}" > "$output" 2> "$output.errors" || { cat "$output.errors" >&2; exit 1; }
  if ! grep -q 'Return=OK' "$output" || grep 'Return=' "$output" | grep -qv 'Return=OK'; then
    echo "compare.sh: not all operations of workload $workload on $contender went well:" >&2
    grep -h 'Return=\|^rheostat:\|Exception' "$output" "$output.errors" >&2 || true
    exit 1
  fi
}

for contender in redis eventual causal; do
  ycsb load c $contender "$folder/load-$contender"
done
for workload in "${workloads[@]}"; do
  contenders=(redis eventual causal)
  [[ $workload != rotx ]] || contenders=(redis eventual causal-coordinated causal-predicted)
  for round in $(seq "$rounds"); do
    for contender in "${contenders[@]}"; do
      echo "workload $workload, round $round of $rounds: $contender (load average $(cut -d ' ' -f 1 /proc/loadavg))" >&2
      server=${started[0]}
      [[ $contender != redis ]] || server=${started[1]}
      before=$(ticks "$server")
      ycsb run "$workload" "$contender" "$folder/result"
      used_us=$((($(ticks "$server") - before) * 1000000 / $(getconf CLK_TCK)))
      # A line for each run: workload, contender, round, operations per second, the processor time of the server for each in us; then of each
      # operation its median and 99th percentile.
      awk -F ', ' -v head="$workload $contender $round" -v used_us="$used_us" '
        $1 == "[OVERALL]" && $2 ~ /^RunTime/ { run_s = $3 / 1000 }
        $1 == "[OVERALL]" && $2 ~ /^Throughput/ { rate = $3 }
        { operation = substr($1, 2, length($1) - 2) }
        operation == "CLEANUP" { next }
        $2 == "50thPercentileLatency(us)" { median[operation] = $3; order[++count] = operation }
        $2 == "99thPercentileLatency(us)" { tail[operation] = $3 }
        END { printf "%s %s %s", head, rate, used_us / (run_s * rate); for (i = 1; i <= count; i++) printf " %s %s %s", order[i], median[order[i]], tail[order[i]]; print "" }
      ' "$folder/result" >> "$folder/runs"
    done
  done
done

# Medians of the rounds; "over Redis" is within a round.
awk '
  function middle(list, count,    i, j, swap) {
    for (i = 2; i <= count; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap }
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
  }
  {
    key = $1 " " $2
    if (!(key in rounds)) keys[++known] = key
    round = ++rounds[key]
    rate[key, round] = $4
    processor[key, round] = $5
    for (i = 6; i < NF; i += 3) {
      if (!((key, $i) in seen)) { seen[key, $i] = 1; operations[key] = operations[key] " " $i }
      fifty[key, $i, round] = $(i + 1); ninetynine[key, $i, round] = $(i + 2)
    }
  }
  END {
    print "| workload | contender | operations per second | over Redis | server, us each | median and 99th percentile, us |"
    print "|---|---|---|---|---|---|"
    for (k = 1; k <= known; k++) {
      key = keys[k]; split(key, name, " "); count = rounds[key]; base = name[1] " redis"
      for (r = 1; r <= count; r++) { rates[r] = rate[key, r]; ratios[r] = rate[key, r] / rate[base, r]; costs[r] = processor[key, r] }
      per_second = middle(rates, count); ratio = middle(ratios, count)
      latencies = ""; number = split(operations[key], operation, " ")
      for (o = 1; o <= number; o++) {
        for (r = 1; r <= count; r++) { low[r] = fifty[key, operation[o], r]; high[r] = ninetynine[key, operation[o], r] }
        latencies = latencies (o > 1 ? "; " : "") tolower(operation[o]) " " middle(low, count) ", " middle(high, count)
      }
      over = name[2] == "redis" ? "" : sprintf("%.2f (%.2f–%.2f)", ratio, ratios[1], ratios[count])
      printf "| %s | %s | %d | %s | %.1f | %s |\n", toupper(name[1]), name[2], per_second, over, middle(costs, count), latencies
    }
  }
' "$folder/runs"
