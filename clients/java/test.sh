#!/usr/bin/env bash
# Called by ../test.sh. Maven fetches what is needed into its own repository.
set -euo pipefail
cd "$(dirname "$0")"
status=0
mvn -B -q -Dstyle.color=never clean test dependency:build-classpath -Dmdep.outputFile=target/classpath "$@" || status=$?
awk '/^Tests run:/ { gsub(",", ""); p += $3 - $5 - $7 - $9; f += $5 + $7; s += $9 } END { printf "suite: %d passed, %d failed, %d skipped\n", p, f, s }' target/surefire-reports/*.txt
[ $status = 0 ] || exit $status
./five-minutes.sh built
