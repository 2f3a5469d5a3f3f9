/**
 * The part of node-llama-cpp that our processes need. To import the package itself takes half of an engine's start, so the build replaces
 * it here by the modules that have these exports (.ci/bundle.mjs). Other exports are imported from the package when they are used.
 */
import * as part from 'node-llama-cpp';

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
} = part;

export type GgmlType = part.GgmlType;
export type GgufInsights = part.GgufInsights;
export type Llama = part.Llama;
export type LlamaGrammarEvaluationState = part.LlamaGrammarEvaluationState;
export type LlamaLogLevel = part.LlamaLogLevel;
export type TokenBias = part.TokenBias;
