/** What decides how a configured model is loaded and how much memory it needs, as engines and inspectors are told it. */
import type { ModelConfig } from '../config/config.js';
import type { Question } from '../engine-client/inspector.js';
import { projectorOf } from './compose-engine.js';

export type Sized = Question['model']['setup'];

/** Of a model, each of its replicas. */
export function setupOf(model: ModelConfig): Sized {
  const { file, kind, seats, contextPerSeat, threads, cores, gpu, flashAttention, prefillTokensPerStep } = model;
  const { gpuLayers, swaFull, kv, checkpoints, prefixReuse, prefixCache } = model;
  const where = { ...(cores !== undefined && { cores }), gpu, ...(gpuLayers !== 'all' && { gpuLayers }) };
  const state = { prefillTokensPerStep, swaFull, kv, checkpoints, prefixReuse, prefixCache };
  const projector = projectorOf(model);
  const images = projector && { projector };
  return { file, kind, seats, contextPerSeat, threads, ...where, flashAttention, ...state, ...images };
}
