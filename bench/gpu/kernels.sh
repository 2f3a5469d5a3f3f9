#!/usr/bin/env bash
# On the machine with a GPU: compiles the kernels for its architecture, 90 by default, and puts them where the package's are,
# which the built addon and the peers use too. After unpack.sh of both parts; compiling needs part a alone.
#   bench/gpu/kernels.sh compile WORK-FOLDER [ARCHITECTURE]
#   bench/gpu/kernels.sh install WORK-FOLDER
set -euo pipefail
cd "$2"
case $1 in
  compile)
    PATH=/usr/local/cuda/bin:$PATH cmake -S ggml -B kernels -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON \
      -DGGML_BACKEND_DL=ON -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_BUILD_TESTS=OFF \
      -DGGML_BUILD_EXAMPLES=OFF -DCMAKE_CUDA_ARCHITECTURES="${3:-90}" -DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON \
      -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN"
    ninja -C kernels ggml-cuda
    ;;
  install)
    cp kernels/bin/libggml-cuda.so node_modules/@node-llama-cpp/linux-x64-cuda/bins/linux-x64-cuda/
    ;;
  *)
    echo "what is $1?" >&2
    exit 2
    ;;
esac
