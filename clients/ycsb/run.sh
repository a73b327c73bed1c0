#!/usr/bin/env bash
# Builds what is not built, and runs the stock YCSB client. `run.sh --help` says how.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
  cat <<'TEXT'
run.sh [--db CLASS [--jars CLASSPATH]] load|run WORKLOAD [OPTION...]

WORKLOAD  a, b, c, d, e, f (YCSB's core workloads), rotx (read-only transactions), or a file of properties
OPTION    the YCSB client's: -p name=value, -threads N, -target OPERATIONS_PER_SECOND, -s (status), ...
--db      another binding than Rheostat's, by its class; --jars is where it and what it needs are found.
          site.ycsb.BasicDB needs no jars and does nothing: what the client itself can do

Examples:
  run.sh load a -p rheostat.hosts=127.0.0.1:7400 -threads 8
  run.sh run a -p rheostat.hosts=127.0.0.1:7400 -threads 8 -p operationcount=100000
  run.sh run rotx -p rheostat.hosts=127.0.0.1:7400 -p rheostat.strategy=predicted -p rheostat.rotx.keys=20
  run.sh run a -p rheostat.server=redis -p rheostat.hosts=127.0.0.1:6379
  run.sh --db site.ycsb.BasicDB run a -p basicdb.verbose=false -p operationcount=1000000

It needs a JDK (17 or later) and Maven. MVN_FLAGS goes to Maven, JAVA_FLAGS to the JVM that runs the client.
The properties of the binding: README.md in this folder.
TEXT
}

fail() {
  echo "run.sh: $1" >&2
  exit 2
}

# Builds the binding, unless its class path is newer than all that it is made from.
build() {
  local made=$here/target/classpath.txt
  if [[ ! -f $made || -n $(find "$here/pom.xml" "$here/src/main" "$here/../../crates/proto/rheostat" -newer "$made" -type f -print -quit) ]]; then
    command -v mvn > /dev/null || fail "Maven (mvn) is needed to build the binding"
    # shellcheck disable=SC2086 # several flags may be given
    mvn -B -q -Dstyle.color=never ${MVN_FLAGS:-} -DskipTests -f "$here/pom.xml" package >&2
    # Maven leaves it as it is when nothing in it has changed.
    touch "$made"
  fi
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
esac
database=rheostat.ycsb.RheostatClient
jars=
while [[ ${1:-} == --* ]]; do
  [[ $# -ge 2 ]] || fail "$1 needs a value"
  case "$1" in
    --db) database=$2 ;;
    --jars) jars=$2: ;;
    *) fail "there is no option '$1' before load or run; there are --db and --jars" ;;
  esac
  shift 2
done
[[ $# -ge 2 ]] || { usage >&2; exit 2; }
case "$1" in
  load) phase=-load ;;
  run) phase=-t ;;
  *) fail "there is no phase '$1'; there are load and run" ;;
esac
workload=$2
shift 2
if [[ ! -f $workload ]]; then
  [[ -f $here/workloads/$workload.properties ]] || fail "there is no workload '$workload'; there are a, b, c, d, e, f, rotx, or a file of properties"
  workload=$here/workloads/$workload.properties
fi

build
classpath=$jars$here/target/classes:$(cat "$here/target/classpath.txt")
# shellcheck disable=SC2086 # several flags may be given
exec java ${JAVA_FLAGS:-} -cp "$classpath" site.ycsb.Client -db "$database" "$phase" -P "$workload" "$@"
