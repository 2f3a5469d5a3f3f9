/**
 * A program that takes the place of node, from which a sidecar in a process of its own starts its children: engines become stubs
 * (engine-stub.ts), so that a test whose promise needs no token computes none.
 */
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { env, execPath } from 'node:process';
import { STUB_ENTRY } from './engine-harness.js';
import type { StubScript } from './stub-script.js';

/** Preloaded into the sidecar: its children are started by the program that TEST_NODE names. */
const PRELOADED = `data:text/javascript,process.execPath=process.env.TEST_NODE??process.execPath`;

/** Of an engine that replies as one with a model does. */
const SCRIPT: StubScript = { steady: true };

/** Writes the program. The entry that a stub takes the place of is its first argument, so that its command line has it too. */
export function writeNode(
  path: string,
  { stub, options }: { readonly stub: boolean; readonly options?: string },
): void {
  const replaced = `for each; do
  shift
  case "$each" in */engine/main.js) set -- "$@" '${STUB_ENTRY}' "$each" ;; *) set -- "$@" "$each" ;; esac
done
`;
  const variables = options === undefined ? '' : `NODE_OPTIONS='${options}' `;
  writeFileSync(path, `#!/bin/sh\n${stub ? replaced : ''}${variables}exec '${execPath}' "$@"\n`);
  chmodSync(path, 0o700);
}

/** Variables of a sidecar whose engines are stubs; `dir` is an empty folder for the program. */
export function stubEnvironment(dir: string): Readonly<Record<string, string>> {
  const TEST_NODE = join(dir, 'node');
  writeNode(TEST_NODE, { stub: true });
  return { TEST_NODE, NODE_OPTIONS: [env['NODE_OPTIONS'] ?? '', `--import=${PRELOADED}`].join(' ').trim() };
}

/** The path under which a stub engine and the prompt hosts open a model, in a folder of its own below `dir`. */
export function stubModel(dir: string, index: number, file: string): string {
  const folder = join(dir, String(index));
  mkdirSync(folder);
  const path = join(folder, JSON.stringify(SCRIPT));
  symlinkSync(file, path);
  return path;
}
