#!/usr/bin/env bash
# Called by ../test.sh. Installs into .venv, once for each version of pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")"
if ! cmp -s pyproject.toml .venv/installed; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip -q --disable-pip-version-check install -e '.[test]'
  cp pyproject.toml .venv/installed
fi
.venv/bin/mypy
.venv/bin/python -m pytest "$@"
.venv/bin/python examples/five_minutes.py
