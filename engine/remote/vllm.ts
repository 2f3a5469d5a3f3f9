/** vLLM: `/v1/completions` with token ids (docs/engines.md). */
import { createHash } from 'node:crypto';
import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';
import { promptIds } from '../protocol/prompt.js';
import {
  ASK_MS,
  hasPlainStops,
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
} from './server-answers.js';
import { readLoad, type LoadMetrics } from './load-watch.js';

/** The most labels whose probabilities one request reports. */
const MAX_LABELS = 128;

const LOAD: LoadMetrics = {
  prefix: 'vllm',
  running: 'num_requests_running',
  waiting: 'num_requests_waiting',
  preempted: 'num_preemptions_total',
  computed: ['prompt_tokens_total', 'generation_tokens_total'],
  kvUse: 'kv_cache_usage_perc',
};

export class Vllm implements Adapter {
  readonly takesStops = true;
  readonly countLags = true;
  readonly mostUnseen = 1;
  readonly #parts: AdapterParts;
  /** What it calls the model. */
  #model = '';

  constructor(parts: AdapterParts) {
    this.#parts = parts;
  }

  async open(): Promise<Opened> {
    const { client, setup } = this.#parts;
    const opened = await openFacts(client, 'vllm', '/v1/models', '/version');
    if ('kind' in opened) return opened;
    const [{ data }, { version }] = opened;
    const all = listOf(data).map(fieldsOf);
    const found = setup.model === undefined ? all[0] : all.find(({ id }) => id === setup.model);
    const id = textOf(found?.['id']);
    if (found === undefined || id === undefined) return { kind: 'unfit', why: 'it has no model of that name' };
    this.#model = id;
    const contextPerSlot = countOf(found['max_model_len']);
    const identity = JSON.stringify([id, found['root'], contextPerSlot, version]);
    return { kind: 'open', facts: { identity, ...(contextPerSlot !== undefined && { contextPerSlot }) } };
  }

  async promptIds({ messages }: Probe): Promise<readonly number[] | undefined> {
    const body = { model: this.#model, messages, add_generation_prompt: true };
    const answer = await this.#parts.client.ask('POST', '/tokenize', ASK_MS, body);
    return answer.kind === 'json' ? tokensOf(fieldsOf(answer.value)['tokens']) : undefined;
  }

  reply(job: GenerateJob, choice: number): ServerRequest {
    const grammar = serverGrammar(job);
    const body = {
      ...this.#common(Array.from(promptIds(job.prompt)), job),
      stream: true,
      stream_options: { include_usage: true },
      return_token_ids: true,
      max_tokens: job.maxTokens,
      temperature: job.temperature,
      top_p: job.topP,
      top_k: job.topK ?? -1,
      min_p: job.minP ?? 0,
      frequency_penalty: job.frequencyPenalty,
      presence_penalty: job.presencePenalty,
      seed: (job.seed + choice) >>> 0,
      stop: hasPlainStops(job) ? job.stops : [],
      ...(grammar?.kind === 'whole' && { structured_outputs: { grammar: grammar.gbnf } }),
    };
    return { path: '/v1/completions', body };
  }

  reader(promptTokens: number): StreamReader {
    return { read: (frame) => eventsOf(frame, promptTokens) };
  }

  async score(job: ScoreJob, question: number, signal: AbortSignal): Promise<Scores> {
    const { tail, labels } = job.questions[question] ?? { tail: new Uint32Array(0), labels: new Uint32Array(0) };
    if (labels.length > MAX_LABELS) return { kind: 'failed', why: 'too many labels' };
    const prompt = [...job.input, ...tail];
    const body = {
      ...this.#common(prompt, job),
      stream: false,
      max_tokens: 1,
      temperature: 0,
      seed: 0,
      logprobs: 1,
      logprob_token_ids: Array.from(labels),
      return_tokens_as_token_ids: true,
    };
    const { client, setup } = this.#parts;
    const answer = await jsonAnswer(client.ask('POST', '/v1/completions', setup.silentMs, body, signal));
    if (answer.kind !== 'json') return answer;
    const { choices, usage } = fieldsOf(answer.value);
    const { prompt_tokens: counted, prompt_tokens_details: details } = fieldsOf(usage);
    if (counted !== prompt.length) return { kind: 'failed', why: 'another number of prompt tokens' };
    const top = fieldsOf(listOf(fieldsOf(fieldsOf(listOf(choices)[0])['logprobs'])['top_logprobs'])[0]);
    const logprobs = Float64Array.from(labels, (label) => numberOf(top[`token_id:${label}`]) ?? NaN);
    if (logprobs.some(Number.isNaN)) return { kind: 'failed', why: 'a label without a probability' };
    const cached = countOf(fieldsOf(details)['cached_tokens']);
    return { kind: 'scores', logprobs, ...(cached !== undefined && { cached }) };
  }

  load(): Promise<LoadReading | undefined> {
    return readLoad(this.#parts.client, LOAD);
  }

  /** What its own settings would decide otherwise, such as those of the model's generation_config.json. */
  #common(prompt: readonly number[], { scope }: Pick<GenerateJob, 'scope'>): object {
    return {
      model: this.#model,
      prompt,
      n: 1,
      echo: false,
      repetition_penalty: 1,
      min_tokens: 0,
      ignore_eos: false,
      skip_special_tokens: true,
      // The account's name stays here.
      cache_salt: createHash('sha256').update(scope).digest('hex'),
    };
  }
}

/** A frame of vLLM's `/v1/completions`: an error frame or an abort may be followed by `[DONE]`, so that proves nothing. */
function eventsOf(frame: unknown, promptTokens: number): readonly StreamEvent[] {
  const fields = fieldsOf(frame);
  if ('error' in fields) return [{ kind: 'error', why: 'the server reports an error' }];
  const choices = fields['choices'];
  if (!Array.isArray(choices)) return [{ kind: 'error', why: 'an unknown frame' }];
  if (choices.length > 0) return choiceEvents(choices[0]);
  const { usage } = fields;
  return usage === undefined || usage === null ? [] : [usageEvent(usage, promptTokens)];
}

function usageEvent(usage: unknown, promptTokens: number): StreamEvent {
  const { prompt_tokens, completion_tokens, prompt_tokens_details } = fieldsOf(usage);
  const prompt = countOf(prompt_tokens);
  const completion = countOf(completion_tokens);
  const cached = countOf(fieldsOf(prompt_tokens_details)['cached_tokens']);
  if (prompt === undefined || completion === undefined) return { kind: 'error', why: 'an end without usage' };
  if (prompt !== promptTokens) return { kind: 'error', why: 'another number of prompt tokens' };
  return { kind: 'usage', prompt, completion, ...(cached !== undefined && { cached }) };
}

function choiceEvents(choice: unknown): StreamEvent[] {
  const { token_ids, text, finish_reason } = fieldsOf(choice);
  const tokens = tokensOf(token_ids);
  if (tokens === undefined || (!Array.isArray(token_ids) && text !== '')) {
    return [{ kind: 'error', why: 'a frame without tokens' }];
  }
  const events: StreamEvent[] = listOf(tokens).map((token) => ({ kind: 'token', token: token as number }));
  if (finish_reason === null || finish_reason === undefined) return events;
  if (finish_reason === 'stop' || finish_reason === 'length')
    return [...events, { kind: 'finish', reason: finish_reason }];
  return [...events, { kind: 'error', why: finish_reason === 'abort' ? 'the server aborted it' : 'an unknown end' }];
}
