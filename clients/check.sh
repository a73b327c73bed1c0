#!/usr/bin/env bash
# Whether every language has every case of suite/suite.toml, and whether docs/clients.md has the table that follows from it. With --bless, writes the table there.
set -euo pipefail
cd "$(dirname "$0")"
page=../docs/clients.md

# Where a language has a case, and how it is called there.
file() {
  case $1 in
    python) echo python/tests/test_suite.py ;;
    go) echo go/suite_test.go ;;
    typescript) echo typescript/test/suite.test.ts ;;
    java) echo java/src/test/java/rheostat/client/SuiteTest.java ;;
  esac
}
declaration() {
  case $1 in
    python) echo "def test_$2(" ;;
    go) echo "func Test_$2(" ;;
    typescript) echo "test(\"$2\"," ;;
    java) echo "void $2()" ;;
  esac
}
languages=(python go typescript java)
cases=$(sed -n 's/^name = "\(.*\)"$/\1/p' suite/suite.toml)
status=0
for language in "${languages[@]}"; do
  [ -d "$language" ] || continue
  for case in $cases; do
    grep -qF "$(declaration "$language" "$case")" "$(file "$language")" || { echo "clients/$language lacks the case $case of suite/suite.toml"; status=1; }
  done
done

table() {
  echo "| feature | Python | Go | TypeScript | Java |"
  echo "|---|---|---|---|---|"
  paste -d '\t' <(sed -n 's/^feature = "\(.*\)"$/\1/p' suite/suite.toml) <(echo "$cases") | while IFS=$'\t' read -r feature case; do
    row="| $feature |"
    for language in "${languages[@]}"; do
      at=$(file "$language")
      called=$(declaration "$language" "$case" | tr -d '(),"' | sed 's/^\(def\|func\|void\|test\) *//')
      if [ -e "$at" ]; then row="$row [\`$called\`](../clients/$at) |"; else row="$row no |"; fi
    done
    echo "$row"
  done
}
if [ "${1:-}" = --bless ]; then
  table > /tmp/table.$$
  sed -i -e "/^<!-- table -->$/,/^<!-- end -->$/{/^<!-- table -->$/r /tmp/table.$$" -e '/^<!-- /!d}' "$page"
  rm /tmp/table.$$
elif [ "$(sed -n '/^<!-- table -->$/,/^<!-- end -->$/p' "$page" | grep -v '^<!--')" != "$(table)" ]; then
  echo "the table in docs/clients.md is not that of suite/suite.toml: clients/check.sh --bless writes it"
  status=1
fi
exit $status
