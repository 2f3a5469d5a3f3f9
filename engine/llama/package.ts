/**
 * The part of node-llama-cpp that most processes need. The build writes it as one module (.ci/bundle-engine.cjs), since
 * importing the package takes half of an engine's start. Where the module was not written, or for another version, the
 * package itself is imported. Other exports are imported from the package when they are used.
 */
import { existsSync } from 'node:fs';
import type * as whole from 'node-llama-cpp';
import { packageVersion } from './addon-file.js';

/** What is in the module. */
export type Bundled = Pick<
  typeof whole,
  | 'GgmlType'
  | 'GgufFileType'
  | 'GgufInsights'
  | 'Llama'
  | 'LlamaGrammarEvaluationState'
  | 'LlamaLogLevel'
  | 'TokenBias'
  | 'getLlamaGpuTypes'
  | 'readGgufFileInfo'
>;

/** The module for this version of the package; undefined: it was not written. */
export function bundleFor(version: string, folder = new URL('../bundled/', import.meta.url)): URL | undefined {
  const file = new URL(`node-llama-cpp-${version}.js`, folder);
  return existsSync(file) ? file : undefined;
}

async function load(): Promise<Bundled> {
  const bundle = bundleFor(packageVersion());
  return bundle === undefined ? await import('node-llama-cpp') : ((await import(bundle.href)) as Bundled);
}

export const {
  GgmlType,
  GgufFileType,
  GgufInsights,
  Llama,
  LlamaGrammarEvaluationState,
  LlamaLogLevel,
  TokenBias,
  getLlamaGpuTypes,
  readGgufFileInfo,
} = await load();

export type GgmlType = whole.GgmlType;
export type GgufInsights = whole.GgufInsights;
export type Llama = whole.Llama;
export type LlamaGrammarEvaluationState = whole.LlamaGrammarEvaluationState;
export type LlamaLogLevel = whole.LlamaLogLevel;
export type TokenBias = whole.TokenBias;
