/** A sidecar with a model that reads images, for end-to-end tests. Needs the addon of `make engine-native`. */
import { join } from 'node:path';
import { ensureProjector, type ProjectorName } from '../../bench/models/random-projector.js';
import { architectureModel, writeArchitecture, WIDTH } from './architectures.js';
import { gemma3, qwen2vl, qwen3 } from './families/attention.js';
import { dataUrl } from './images.js';
import { CACHE } from './models.js';
import { Sidecar } from './sidecar.js';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** A model's file and its projector's. */
export interface SeeingModel {
  readonly file: string;
  readonly projector: string;
}

/** A random model of the kind that a projector fits; `hybrid`: layers with a state, and layers with attention. */
export async function seeingModel(name: ProjectorName | 'hybrid'): Promise<SeeingModel> {
  const projector = await ensureProjector(join(CACHE, 'models'), name === 'hybrid' ? 'mlp' : name, WIDTH);
  switch (name) {
    case 'hybrid':
      return { file: await architectureModel('hybrid'), projector };
    case 'mlp':
      return { file: await writeArchitecture('qwen3', (vocabulary) => qwen3(vocabulary, false)), projector };
    case 'qwen2vl_merger':
      return { file: await writeArchitecture('qwen2vl', qwen2vl), projector };
    case 'gemma3':
      return { file: await writeArchitecture('gemma3', gemma3), projector };
  }
}

export const SEEING = 'seeing';

/** Ready, with its vision process. `more`: of the model; `vision`: of its `vision`. */
export async function seeingSidecar(
  t: Owner,
  { file, projector }: SeeingModel,
  {
    vision = {},
    config = {},
    ...more
  }: { readonly vision?: object; readonly config?: object; readonly [key: string]: unknown } = {},
): Promise<Sidecar> {
  const model = { id: SEEING, kind: 'chat', file, seats: 4, contextPerSeat: 4096, threads: 1, gpu: false, ...more };
  const models = [{ ...model, vision: { projector, threads: 1, ...vision } }];
  const sidecar = await Sidecar.start(t, { config: { models, ...config } });
  const outcome = (event: string): boolean => sidecar.lines.some((line) => line.event === event);
  await sidecar.until(() => outcome('vision ready') || outcome('vision cannot serve its model'), 'vision');
  if (!outcome('vision ready')) throw new Error('this addon has no images: run "make engine-native" first');
  return sidecar;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly error: { readonly code?: string; readonly message?: string; readonly param?: string };
}

/** A greedy chat. */
export async function see(
  sidecar: Sidecar,
  messages: readonly object[],
  more: Readonly<Record<string, unknown>> = {},
): Promise<Answer> {
  const body = { model: SEEING, messages, temperature: 0, max_completion_tokens: 16, ...more };
  const response = await sidecar.post('/chat/completions', body);
  const answer = (await response.json()) as {
    choices?: { message: { content: string | null; reasoning_content?: string } }[];
    usage?: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
    error?: Answer['error'];
  };
  const [first] = answer.choices ?? [];
  return {
    status: response.status,
    text: `${first?.message.reasoning_content ?? ''}${first?.message.content ?? ''}`,
    promptTokens: answer.usage?.prompt_tokens ?? 0,
    cachedTokens: answer.usage?.prompt_tokens_details.cached_tokens ?? 0,
    error: answer.error ?? {},
  };
}

export const textPart = (text: string): object => ({ type: 'text', text });

export function imagePart(file: Uint8Array, type?: string): object {
  return { type: 'image_url', image_url: { url: dataUrl(file, type) } };
}
