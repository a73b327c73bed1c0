#!/usr/bin/env bash
# Builds the client, unless told that it is built, and runs examples/FiveMinutes.java.
set -euo pipefail
cd "$(dirname "$0")"
[ "${1:-}" = built ] || mvn -B -q -Dstyle.color=never compile dependency:build-classpath -Dmdep.outputFile=target/classpath
java -cp "target/classes:$(cat target/classpath)" examples/FiveMinutes.java 2>&1 | grep -v '^SLF4J'
