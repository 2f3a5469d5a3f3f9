/** llama.cpp's own server: `/completion` with token ids. It never sends `[DONE]` there. */
import { ALL_ACCOUNTS, type CacheScope } from '../protocol/cache-key.js';
import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';
import { promptIds } from '../protocol/prompt.js';
import { fixedSeed, usableTemperature } from '../scheduler/decoder.js';
import {
  ASK_MS,
  type Adapter,
  type AdapterParts,
  type LoadReading,
  type Opened,
  type Probe,
  type Scores,
  type ServerRequest,
  type StreamReader,
  type StreamEvent,
} from './adapter.js';
import { readLoad, type LoadMetrics } from './load-watch.js';
import {
  countOf,
  fieldsOf,
  jsonAnswer,
  listOf,
  numberOf,
  openFacts,
  serverGrammar,
  textOf,
  tokensOf,
  type Fields,
} from './server-answers.js';

/** Number of a trigger that is a text, in its enumeration. */
const WORD = 1;

/** Added to the logit of a token that is to be chosen; probabilities are taken before that. */
const FORCED = 1000;

/** Most probable tokens that are reported for a question; a label that is not among them is asked for by itself. */
const TOP = 32;

/**
 * The end token, and tokens of an unfinished character. Valid text leaves three of these; a model that is sampled at random begins
 * one character after the other, each with a probability of about a third.
 */
const MOST_UNSEEN = 16;

const LOAD: LoadMetrics = {
  prefix: 'llamacpp',
  running: 'requests_processing',
  waiting: 'requests_deferred',
  computed: ['prompt_tokens_total', 'tokens_predicted_total'],
};

export class LlamaServer implements Adapter {
  /**
   * With stops it withholds text that may begin one, and later sends that text once more in the only frame that tells what a
   * character of several tokens was. Without them that frame has the character alone.
   */
  readonly takesStops = false;
  readonly countLags = false;
  readonly mostUnseen = MOST_UNSEEN;
  readonly #parts: AdapterParts;
  #metrics = true;

  constructor(parts: AdapterParts) {
    this.#parts = parts;
  }

  async open(): Promise<Opened> {
    const { client } = this.#parts;
    const opened = await openFacts(client, 'llama-server', '/props', '/v1/models');
    if ('kind' in opened) return opened;
    const [fields, listed] = opened;
    const slots = countOf(fields['total_slots']);
    const contextPerSlot = countOf(fieldsOf(fields['default_generation_settings'])['n_ctx']);
    if (slots === undefined || contextPerSlot === undefined)
      return { kind: 'unfit', why: 'it is no llama-server of a known version' };
    this.#metrics = fields['endpoint_metrics'] === true;
    if (!this.#metrics && fields['endpoint_slots'] !== true) {
      return { kind: 'unfit', why: 'it reports neither /metrics nor /slots: start it with --metrics' };
    }
    const vocabulary = countOf(fieldsOf(fieldsOf(listOf(listed['data'])[0])['meta'])['n_vocab']);
    const identity = JSON.stringify([
      fields['model_path'],
      fields['build_info'],
      slots,
      contextPerSlot,
      fields['chat_template'],
    ]);
    return {
      kind: 'open',
      facts: { identity, slots, contextPerSlot, ...(vocabulary !== undefined && { vocabulary }) },
    };
  }

  async promptIds({ messages }: Probe): Promise<readonly number[] | undefined> {
    const { client } = this.#parts;
    const rendered = await client.ask('POST', '/apply-template', ASK_MS, { messages });
    const content = rendered.kind === 'json' ? textOf(fieldsOf(rendered.value)['prompt']) : undefined;
    if (content === undefined) return undefined;
    const body = { content, add_special: true, parse_special: true };
    const tokenized = await client.ask('POST', '/tokenize', ASK_MS, body);
    return tokenized.kind === 'json' ? tokensOf(fieldsOf(tokenized.value)['tokens']) : undefined;
  }

  reply(job: GenerateJob, choice: number): ServerRequest {
    const seed = (job.seed + choice) >>> 0;
    const body = {
      ...common(promptIds(job.prompt), job.scope),
      stream: true,
      return_tokens: true,
      return_progress: true,
      response_fields: ['stop', 'stop_type', 'tokens_predicted', 'tokens_evaluated', 'timings'],
      n_predict: job.maxTokens,
      samplers: ['penalties', 'top_k', 'top_p', 'min_p', 'temperature'],
      temperature: usableTemperature(job.temperature),
      top_p: job.topP,
      top_k: job.topK ?? 0,
      min_p: job.minP ?? 0,
      frequency_penalty: job.frequencyPenalty,
      presence_penalty: job.presencePenalty,
      repeat_last_n: job.maxTokens,
      seed: fixedSeed(seed),
      stop: [],
      ...grammarFields(job),
    };
    return { path: '/completion', body };
  }

  reader(promptTokens: number): StreamReader {
    return new LlamaStream(promptTokens);
  }

  async score(job: ScoreJob, question: number, signal: AbortSignal): Promise<Scores> {
    const { tail, labels } = job.questions[question] ?? { tail: new Uint32Array(0), labels: new Uint32Array(0) };
    const prompt = [...job.input, ...tail];
    const found = new Map<number, number>();
    let cached: number | undefined;
    // Each further request is for a label that is not among the most probable tokens.
    for (let next = labels[0]; next !== undefined; next = labels.find((label) => !found.has(label))) {
      const asked = await this.#ask(prompt, job.scope, next, found.size === 0 ? TOP : 1, signal);
      if (asked.kind !== 'found') return asked;
      cached ??= asked.cached;
      for (const [token, logprob] of asked.logprobs) found.set(token, logprob);
      if (!found.has(next)) return { kind: 'failed', why: 'a label without a probability' };
    }
    const logprobs = Float64Array.from(labels, (label) => found.get(label) ?? -Infinity);
    return { kind: 'scores', logprobs, ...(cached !== undefined && { cached }) };
  }

  async load(): Promise<LoadReading | undefined> {
    const { client } = this.#parts;
    if (!this.#metrics) {
      const slots = await client.ask('GET', '/slots', ASK_MS);
      if (slots.kind !== 'json' || !Array.isArray(slots.value)) return undefined;
      return { running: slots.value.filter((slot) => fieldsOf(slot)['is_processing'] === true).length };
    }
    return await readLoad(client, LOAD);
  }

  /**
   * One token after the prompt, which is made to be `chosen`: its probability is reported whatever its rank, and its text is
   * a whole character, without which none would be.
   */
  async #ask(
    prompt: readonly number[],
    scope: CacheScope,
    chosen: number,
    top: number,
    signal: AbortSignal,
  ): Promise<TokenProbabilities> {
    const body = {
      ...common(prompt, scope),
      stream: false,
      response_fields: ['completion_probabilities', 'tokens_evaluated', 'timings/cache_n'],
      n_predict: 1,
      n_probs: top,
      post_sampling_probs: false,
      temperature: 0,
      samplers: ['temperature'],
      logit_bias: [[chosen, FORCED]],
    };
    const { client, setup } = this.#parts;
    const answer = await jsonAnswer(client.ask('POST', '/completion', setup.silentMs, body, signal));
    if (answer.kind !== 'json') return answer;
    const fields = fieldsOf(answer.value);
    if (fields['tokens_evaluated'] !== prompt.length) return { kind: 'failed', why: 'another number of prompt tokens' };
    const first = fieldsOf(listOf(fields['completion_probabilities'])[0]);
    const all = [first, ...listOf(first['top_logprobs']).map(fieldsOf)].flatMap(pairOf);
    const cached = countOf(fields['timings/cache_n']);
    return { kind: 'found', logprobs: all, ...(cached !== undefined && { cached }) };
  }
}

type TokenProbabilities =
  | { readonly kind: 'found'; readonly logprobs: readonly (readonly [number, number])[]; readonly cached?: number }
  | Exclude<Scores, { kind: 'scores' }>;

function pairOf(entry: Fields): (readonly [number, number])[] {
  const token = countOf(entry['id']);
  const logprob = numberOf(entry['logprob']);
  return token === undefined || logprob === undefined ? [] : [[token, logprob]];
}

/** What its own settings would decide otherwise. */
function common(prompt: ArrayLike<number>, scope: CacheScope): object {
  return {
    prompt: Array.from(prompt),
    // Its slots are not kept apart, so what is not shared by all accounts is not reused.
    cache_prompt: scope === ALL_ACCOUNTS,
    n_keep: 0,
    n_probs: 0,
    typical_p: 1,
    top_n_sigma: -1,
    xtc_probability: 0,
    dynatemp_range: 0,
    repeat_penalty: 1,
    dry_multiplier: 0,
    mirostat: 0,
    adaptive_target: -1,
    ignore_eos: false,
    t_max_predict_ms: -1,
    n_indent: 0,
    backend_sampling: false,
    reasoning_budget_tokens: -1,
  };
}

function grammarFields(job: GenerateJob): object {
  const grammar = serverGrammar(job);
  if (grammar === undefined) return { grammar: '' };
  if (grammar.kind === 'whole') return { grammar: grammar.gbnf, grammar_lazy: false };
  const { gbnf, marks } = grammar;
  return {
    grammar: gbnf,
    grammar_lazy: true,
    grammar_triggers: marks.map((value) => ({ type: WORD, value })),
    preserved_tokens: marks.slice(0, 1),
  };
}

/**
 * Frames of llama-server's `/completion`. Tokens of an unfinished character are in none: the frame of the one that
 * finishes it has the text of all, and its count shows how many they were.
 */
class LlamaStream implements StreamReader {
  readonly #promptTokens: number;
  #begun = false;
  /** Prompt tokens that were computed, as last reported. */
  #processed = 0;
  #tokens = 0;

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }

  read(frame: unknown): readonly StreamEvent[] {
    const fields = fieldsOf(frame);
    if ('error' in fields) return [{ kind: 'error', why: 'the server reports an error' }];
    if ('prompt_progress' in fields) return this.#progress(fieldsOf(fields['prompt_progress']));
    if (fields['stop'] === true) return this.#end(fields);
    if (fields['stop'] === false) return this.#more(fields);
    return [{ kind: 'error', why: 'an unknown frame' }];
  }

  #progress({ cache, total, processed }: Fields): readonly StreamEvent[] {
    if (total !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    const before = this.#processed;
    this.#processed = Math.max(before, countOf(processed) ?? 0);
    if (this.#begun) return this.#processed > before ? [{ kind: 'progress' }] : [];
    this.#begun = true;
    return [{ kind: 'begun', cached: countOf(cache) ?? 0 }];
  }

  #more(fields: Fields): readonly StreamEvent[] {
    const tokens = tokensOf(fields['tokens']);
    const so = countOf(fields['tokens_predicted']);
    const text = textOf(fields['content']);
    if (tokens === undefined || so === undefined || text === undefined || !Array.isArray(fields['tokens']))
      return [{ kind: 'error', why: 'a frame without tokens' }];
    const missing = so - this.#tokens - tokens.length;
    const [first, ...rest] = tokens;
    if (missing < 0 || (missing > 0 && rest.length > 0)) return [{ kind: 'error', why: 'a wrong count of tokens' }];
    this.#tokens = so;
    if (first === undefined) return [];
    const late = missing > 0 && { late: { tokens: missing, text } };
    return [{ kind: 'token', token: first, ...late }, ...rest.map((token) => ({ kind: 'token' as const, token }))];
  }

  #end(fields: Fields): readonly StreamEvent[] {
    const completion = countOf(fields['tokens_predicted']);
    const prompt = countOf(fields['tokens_evaluated']);
    const cached = countOf(fieldsOf(fields['timings'])['cache_n']);
    if (completion === undefined || prompt === undefined) return [{ kind: 'error', why: 'an end without usage' }];
    if (prompt !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    const usage = { kind: 'usage' as const, prompt, completion, ...(cached !== undefined && { cached }) };
    const type = fields['stop_type'];
    if (type === 'eos' || type === 'word') return [usage, { kind: 'finish', reason: 'stop' }];
    if (type === 'limit') return [usage, { kind: 'finish', reason: 'length' }];
    return [{ kind: 'error', why: 'an unknown end' }];
  }
}
