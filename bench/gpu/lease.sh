#!/usr/bin/env bash
# On a GPU machine that is lent for minutes, after the kernels are installed: the benches of this folder, briefly, those first
# that tell most. Each has a bound; results are in WORK-FOLDER/bench/results after each.
#   bench/gpu/lease.sh WORK-FOLDER
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)/here.sh"
while read -r bench seconds; do
  echo "== $(date +%T) $bench"
  timeout "$seconds" "$here" "$1" node "dist/bench/gpu/$bench.bench.js" 8b cuda brief || echo "$bench ended with $?"
done << 'END'
shares 170
decodes 90
limit 120
llama-server 240
prompts 150
decisions 120
restore 60
steps 100
start 100
END
