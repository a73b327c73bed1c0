#!/usr/bin/env bash
# Called by ../test.sh. What is needed comes through the Go module proxy, into Go's own cache.
set -euo pipefail
cd "$(dirname "$0")"
[ -z "$(gofmt -l .)" ] || { echo "not formatted:"; gofmt -l .; exit 1; }
go vet ./...
go test -timeout 5m -count=1 -v . "$@" | grep -v '^=== RUN'
go run ./examples/fiveminutes
