#!/usr/bin/env bash
# On the GPU machine: puts the parts of pack.sh together, builds the addon and the peers with CUDA, runs the bench.
#   bench/gpu/unpack.sh FOLDER-OF-THE-PARTS WORK-FOLDER [8b | 8b-f16]
set -euo pipefail
parts=$1 work=$2 model=${3:-8b}
mkdir -p "$work" && cat "$parts"/part-* | tar -C "$work" -xJf -
cd "$work"
export PATH="$PWD/node/bin:$PATH" npm_config_nodedir="$PWD/node" CMAKE_CUDA_ARCHITECTURES=native
node node_modules/node-llama-cpp/dist/cli/cli.js source download --gpu cuda
peers=bench/.cache/peers
if [ ! -x "$peers/build/bin/llama-server" ]; then
  mkdir -p "$peers"
  git clone --quiet node_modules/node-llama-cpp/llama/gitRelease.bundle "$peers/src"
  cmake -S "$peers/src" -B "$peers/build" -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native
  cmake --build "$peers/build" -j --target llama-server llama-batched-bench
fi
node dist/bench/gpu/gpu.bench.js "$model" cuda
