#!/usr/bin/env bash
# Called by ../test.sh. Installs into node_modules, once for each version of package.json.
set -euo pipefail
cd "$(dirname "$0")"
if ! cmp -s package.json node_modules/installed; then
  rm -rf node_modules
  npm install --silent --no-package-lock --no-audit --no-fund 2> /dev/null
  cp package.json node_modules/installed
fi
rm -rf dist
node_modules/.bin/tsc -p tsconfig.test.json
node --test --test-force-exit --test-timeout=120000 --test-reporter=spec "$@" dist/test/suite.test.js
node dist/examples/five-minutes.js
