/** A tiny random model of each architecture family, beside those of architectures.ts. */
import { architectureModel, writeArchitecture } from '../architectures.js';
import { testModel } from '../models.js';
import { deepseek2, gemma3, gptOss, qwen3 } from './attention.js';
import { falconH1, mamba2, qwen3next } from './recurrent.js';

/** A family, the state of its models, and the function that makes one. */
export interface Family {
  /** llama.cpp's name of the architecture. */
  readonly name: string;
  readonly state: 'every token' | 'sliding window' | 'recurrent' | 'recurrent and every token';
  readonly model: () => Promise<string>;
}

export const FAMILIES: readonly Family[] = [
  { name: 'llama', state: 'every token', model: () => testModel() },
  { name: 'qwen3', state: 'every token', model: () => writeArchitecture('qwen3', (v) => qwen3(v, false)) },
  { name: 'qwen3moe', state: 'every token', model: () => writeArchitecture('qwen3moe', (v) => qwen3(v, true)) },
  { name: 'gemma3', state: 'sliding window', model: () => writeArchitecture('gemma3', gemma3) },
  { name: 'gpt-oss', state: 'sliding window', model: () => writeArchitecture('gpt-oss', gptOss) },
  { name: 'cohere2', state: 'sliding window', model: () => architectureModel('sliding-window') },
  { name: 'lfm2', state: 'recurrent and every token', model: () => architectureModel('hybrid') },
  { name: 'mamba', state: 'recurrent', model: () => architectureModel('recurrent') },
  { name: 'mamba2', state: 'recurrent', model: () => writeArchitecture('mamba2', mamba2) },
  {
    name: 'falcon-h1',
    state: 'recurrent and every token',
    model: () => writeArchitecture('falcon-h1', falconH1),
  },
  {
    name: 'qwen3next',
    state: 'recurrent and every token',
    model: () => writeArchitecture('qwen3next', qwen3next),
  },
  { name: 'deepseek2', state: 'every token', model: () => writeArchitecture('deepseek2', deepseek2) },
];
