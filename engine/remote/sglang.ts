/** SGLang: `/generate` with token ids (docs/engines.md). */
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

const LOAD: LoadMetrics = {
  prefix: 'sglang',
  running: 'num_running_reqs',
  waiting: 'num_queue_reqs',
  computed: ['prompt_tokens_total', 'generation_tokens_total'],
  kvUse: 'token_usage',
};

export class Sglang implements Adapter {
  readonly takesStops = true;
  readonly countLags = true;
  readonly mostUnseen = 1;
  /** Each frame repeats all tokens so far, with their text: some ten times the bytes of a usual token and its id. */
  readonly lineTokenBytes = 64;
  readonly #parts: AdapterParts;
  #model = '';

  constructor(parts: AdapterParts) {
    this.#parts = parts;
  }

  async open(): Promise<Opened> {
    const { client } = this.#parts;
    const opened = await openFacts(client, 'sglang', '/get_model_info', '/get_server_info');
    if ('kind' in opened) return opened;
    const [model, { max_running_requests: most, context_length: context, version }] = opened;
    const path = textOf(model['model_path']);
    if (path === undefined) return { kind: 'unfit', why: 'it is no SGLang of a known version' };
    this.#model = path;
    const identity = JSON.stringify([path, model['weight_version'], version, context]);
    const slots = countOf(most);
    const contextPerSlot = countOf(context);
    const sizes = { ...(slots !== undefined && { slots }), ...(contextPerSlot !== undefined && { contextPerSlot }) };
    return { kind: 'open', facts: { identity, ...sizes } };
  }

  /** It renders no template by itself: the text that our own made is tokenized there. */
  async promptIds({ text }: Probe): Promise<readonly number[] | undefined> {
    const body = { model: this.#model, prompt: text, add_special_tokens: false };
    const answer = await this.#parts.client.ask('POST', '/tokenize', ASK_MS, body);
    return answer.kind === 'json' ? tokensOf(fieldsOf(answer.value)['tokens']) : undefined;
  }

  reply(job: GenerateJob, choice: number, name: string): ServerRequest {
    const grammar = serverGrammar(job);
    const body = {
      rid: name,
      input_ids: Array.from(promptIds(job.prompt)),
      stream: true,
      return_logprob: false,
      sampling_params: {
        max_new_tokens: job.maxTokens,
        min_new_tokens: 0,
        temperature: job.temperature,
        top_p: job.topP,
        top_k: job.topK ?? -1,
        min_p: job.minP ?? 0,
        frequency_penalty: job.frequencyPenalty,
        presence_penalty: job.presencePenalty,
        repetition_penalty: 1,
        sampling_seed: (job.seed + choice) >>> 0,
        stop: hasPlainStops(job) ? job.stops : [],
        ignore_eos: false,
        skip_special_tokens: true,
        n: 1,
        ...(grammar?.kind === 'whole' && { ebnf: grammar.gbnf }),
      },
    };
    return { path: '/generate', body };
  }

  reader(promptTokens: number): StreamReader {
    return new SglangStream(promptTokens);
  }

  async score(job: ScoreJob, question: number, signal: AbortSignal): Promise<Scores> {
    const { tail, labels } = job.questions[question] ?? { tail: new Uint32Array(0), labels: new Uint32Array(0) };
    const body = {
      model: this.#model,
      query: Array.from(job.input),
      items: [Array.from(tail)],
      label_token_ids: Array.from(labels),
      // The share of the whole vocabulary, not of the labels.
      apply_softmax: false,
      item_first: false,
    };
    const { client, setup } = this.#parts;
    const answer = await jsonAnswer(client.ask('POST', '/v1/score', setup.silentMs, body, signal));
    if (answer.kind !== 'json') return answer;
    const scores = listOf(listOf(fieldsOf(answer.value)['scores'])[0]).map(numberOf);
    if (scores.length !== labels.length || !scores.every((score) => score !== undefined && score >= 0 && score <= 1)) {
      return { kind: 'failed', why: 'a label without a probability' };
    }
    return { kind: 'scores', logprobs: Float64Array.from(scores, (score) => Math.log(score ?? 0)) };
  }

  load(): Promise<LoadReading | undefined> {
    return readLoad(this.#parts.client, LOAD);
  }

  /** A closed connection alone does not stop every version of it. */
  abort(name: string): void {
    void this.#parts.client.ask('POST', '/abort_request', ASK_MS, { rid: name });
  }
}

/** Frames of SGLang's `/generate`: `output_ids` are all so far, or with a switch of the server the new ones alone. */
class SglangStream implements StreamReader {
  readonly #promptTokens: number;
  #seen = 0;

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }

  read(frame: unknown): readonly StreamEvent[] {
    const fields = fieldsOf(frame);
    if ('error' in fields) return [{ kind: 'error', why: 'the server reports an error' }];
    const ids = Array.isArray(fields['output_ids']) ? tokensOf(fields['output_ids']) : undefined;
    const { prompt_tokens, completion_tokens, cached_tokens, finish_reason } = fieldsOf(fields['meta_info']);
    const completion = countOf(completion_tokens);
    const prompt = countOf(prompt_tokens);
    if (ids === undefined || completion === undefined || prompt === undefined) {
      return [{ kind: 'error', why: 'a frame without tokens' }];
    }
    if (prompt !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    const fresh = completion - this.#seen;
    if (fresh < 0 || (ids.length !== completion && ids.length !== fresh)) {
      return [{ kind: 'error', why: 'a wrong count of tokens' }];
    }
    this.#seen = completion;
    const cached = countOf(cached_tokens);
    const begun: StreamEvent = { kind: 'begun', cached: cached ?? 0 };
    const tokens = ids.slice(ids.length - fresh).map((token): StreamEvent => ({ kind: 'token', token }));
    const events = [begun, ...tokens];
    if (finish_reason === null || finish_reason === undefined) return events;
    const { type } = fieldsOf(finish_reason);
    if (type !== 'stop' && type !== 'length') {
      return [...events, { kind: 'error', why: type === 'abort' ? 'the server aborted it' : 'an unknown end' }];
    }
    const usage = { kind: 'usage' as const, prompt, completion, ...(cached !== undefined && { cached }) };
    return [...events, usage, { kind: 'finish', reason: type }];
  }
}
