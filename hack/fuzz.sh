#!/usr/bin/env bash
# Runs every fuzz target of the module for a time each: hack/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
for file in $(git ls-files '*_test.go' | xargs grep -l '^func Fuzz'); do
  for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
    echo "=== $target in $(dirname "$file")"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:-10s}" "./$(dirname "$file")"
  done
done
