/** Greedy replies of llama-server to prompts of tokens, for a model of each architecture family. */
import { readFile } from 'node:fs/promises';
import { LlamaServer } from '../../bench/support/peers.js';
import { FAMILIES } from '../support/families/families.js';
import { bundleCommit } from '../support/models.js';
import { sourceRoot } from '../support/source-root.js';

/** Where `make goldens` writes them. */
export const REPLIES_FILE = `${sourceRoot}/test/goldens/replies.json`;

/** Tokens of a reply. */
export const REPLY_TOKENS = 24;
/** Tokens of a prompt: more than the sliding windows of the models, and than two chunks of the tests' loop. */
const PROMPT_TOKENS = 148;
/**
 * The least difference between the log-probabilities of the two most probable tokens at each place of a reply. Rounding differs between
 * instruction sets and between splits of a prompt, and changes them by less than a hundredth of this.
 */
const LEAST_MARGIN = 0.01;
/** The most prompts that are tried to find such a reply. */
const MOST_PROMPTS = 40;

export interface GoldenReply {
  /** The number of the prompt, see {@link goldenPrompt}. */
  readonly prompt: number;
  readonly tokens: readonly number[];
}

export interface GoldenReplies {
  /** The commit of llama.cpp. */
  readonly llama: string;
  /** By family. */
  readonly families: Readonly<Record<string, GoldenReply>>;
}

export async function readReplies(): Promise<GoldenReplies> {
  return JSON.parse(await readFile(REPLIES_FILE, 'utf8')) as GoldenReplies;
}

/** Tokens of the tests' vocabulary that are no control tokens; different ones for each `i`. */
export function goldenPrompt(i: number): Uint32Array {
  return Uint32Array.from({ length: PROMPT_TOKENS }, (_, at) => 60 + ((at * 7 + i * 13 + ((at * at) % 11)) % 90));
}

/** Records the reply of a llama-server for each family. Needs `make peers`. */
export async function recordReplies(): Promise<GoldenReplies> {
  const families: Record<string, GoldenReply> = {};
  for (const { name, model } of FAMILIES) families[name] = await recordReply(await model());
  return { llama: await bundleCommit(), families };
}

/** The reply to the first prompt that has {@link REPLY_TOKENS} tokens and no near tie. */
async function recordReply(file: string): Promise<GoldenReply> {
  const server = await LlamaServer.start(file, { threads: 1, slots: 1, contextPerSlot: 512, more: ['--no-warmup'] });
  try {
    for (let prompt = 0; prompt < MOST_PROMPTS; prompt++) {
      const tokens = await completion(server.port, goldenPrompt(prompt));
      if (tokens?.length === REPLY_TOKENS) return { prompt, tokens };
    }
    throw new Error(`no prompt of ${MOST_PROMPTS} has a reply without a near tie`);
  } finally {
    await server.close();
  }
}

interface Completion {
  readonly tokens: readonly number[];
  readonly completion_probabilities: readonly { readonly top_logprobs: readonly { readonly logprob: number }[] }[];
}

/** Undefined: a near tie. */
async function completion(port: number, prompt: Uint32Array): Promise<readonly number[] | undefined> {
  const body = {
    prompt: [...prompt],
    n_predict: REPLY_TOKENS,
    temperature: 0,
    n_probs: 2,
    return_tokens: true,
    cache_prompt: false,
  };
  const response = await fetch(`http://127.0.0.1:${port}/completion`, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`llama-server answered ${response.status}`);
  const { tokens, completion_probabilities: places } = (await response.json()) as Completion;
  const margins = places.map(({ top_logprobs: [first, second] }) => (first?.logprob ?? 0) - (second?.logprob ?? 0));
  return margins.every((margin) => margin >= LEAST_MARGIN) ? tokens : undefined;
}
