#!/usr/bin/env bash
# On a GPU machine that is lent for 15 minutes, after the kernels are installed: the benches of this folder, briefly, with the default
# settings, those first that tell most. Each has a bound, 890 s in all; results are in WORK-FOLDER/bench/results after each, and
# together in one page there.
#   bench/gpu/lease.sh WORK-FOLDER
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)/here.sh"
page="$1/bench/results/lease.md"
mkdir -p "$(dirname "$page")"
echo "# What a lease showed" > "$page"
while read -r seconds bench model; do
  echo "== $(date +%T) $bench $model"
  touch "$page.before"
  timeout "$seconds" "$here" "$1" node "dist/bench/gpu/$bench.bench.js" "$model" cuda brief
  status=$?
  {
    printf '\n## %s, %s: ended with %s\n\n' "$bench" "$model" "$status"
    find "$1/bench/results" -name 'gpu-*.md' -newer "$page.before" -exec cat {} +
  } >> "$page"
done << 'END'
90 start 8b
240 llama-server 8b
130 limit 8b
75 restore 8b
120 shares 8b
140 limit 8b-f16
95 steps 8b-f16
END
rm -f "$page.before"
