#!/usr/bin/env bash
# Plays the property tests and simulations with seeds of which no one knows the outcome,
# round after round until the time is over: hack/explore.sh 10m
# make test plays the same seeds each time, so that it fails for what a change did.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10m}
case $time in
  *h) limit=$((${time%h} * 3600)) ;;
  *m) limit=$((${time%m} * 60)) ;;
  *) limit=${time%s} ;;
esac
for ((round = 1; SECONDS < limit; round++)); do
  echo "=== round $round"
  go test -count 1 ./kvlayout -args -kvlayout.seed 0
  go test -count 1 ./engine -run ScriptsAsAShell -args -engine.seed 0
  go test -count 1 ./transferagent/session -run 'TestSimulation$' -args -sim.first 0 -sim.count 20000
  go test -count 1 ./pdpool -run 'NoOrder|KilledBetween' -args -sim.first "$((RANDOM % 4000))"
done
