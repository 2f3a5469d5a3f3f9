#!/usr/bin/env bash
# Runs a command in the work folder of unpack.sh, with its Node and CUDA's libraries; the driver keeps what it compiles there.
#   bench/gpu/here.sh WORK-FOLDER COMMAND...
set -euo pipefail
cd "$1"
shift
export PATH="$PWD/node/bin:$PATH" CUDA_CACHE_PATH="$PWD/cuda-cache" CUDA_CACHE_MAXSIZE=4294967296
LD_LIBRARY_PATH=$(cat libraries)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$@"
