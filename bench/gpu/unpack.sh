#!/usr/bin/env bash
# On the machine with a GPU: unpacks parts of pack.sh into a work folder.
#   bench/gpu/unpack.sh WORK-FOLDER PART...
set -euo pipefail
work=$1
mkdir -p "$work"
shift
for part in "$@"; do xz -dc -T0 "$part" | tar -C "$work" -xf -; done
# CUDA's libraries, where the loader does not find them by itself.
for name in libcudart.so.13 libcublas.so.13 libcublasLt.so.13; do
  ldconfig -p | grep -q "$name " || { find /usr/local /usr/lib /opt -name "$name" -printf '%h\n' 2>/dev/null || true; } | head -1
done | sort -u | paste -sd: > "$work/libraries"
