/**
 * A stub of vLLM, SGLang and llama-server, made after their published interfaces. It is strict about the fields that it
 * gets, and misbehaves in known ways. It tests how their answers are read, not how they behave.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { chatPrompt, type PromptParts } from '../../engine/prompt/chat-prompt.js';
import { InputTokenizer } from '../../engine/prompt/input-tokens.js';
import { promptIds } from '../../engine/protocol/prompt.js';
import type { ProbeMessage } from '../../engine/remote/adapter.js';
import { fieldsOf, listOf, textOf } from '../../engine/remote/server-answers.js';

export type StubKind = 'llama-server' | 'vllm' | 'sglang';

/** The reply: a, b, c and the end token, as the test models have them. */
const REPLY = [97, 98, 99] as const;
export const END = 258;
const CACHED = 1;
/** Between two pings. */
const PING_MS = 20;

/** What it does in place of a whole reply. */
export interface Misbehaviour {
  /** Answers with this status. */
  readonly status?: number;
  /** Resets the connection after so many frames; 0: before the headers. */
  readonly resetAfter?: number;
  /** Ends the answer after so many frames, as if it were complete. */
  readonly endAfter?: number;
  /** In place of the frame with this number, or after the last one. */
  readonly frames?: Readonly<Record<number, string>>;
  /** Changes each frame. */
  readonly frame?: (frame: Record<string, unknown>) => unknown;
  /** How the answer’s bytes are split: each alone, or all at once. */
  readonly cut?: 'bytes' | 'whole';
  readonly lineEnd?: string;
  /** The connection stays open after the end. */
  readonly staysOpen?: boolean;
  /** The stub sends this many frames and then nothing more, until its connection is closed. */
  readonly hangsAfter?: number;
  /** While it hangs it sends this text of a prompt's length again and again. */
  readonly pings?: (promptTokens: number) => string;
  /** How long it continues after its connection was closed, ms; Infinity: forever. */
  readonly goesOnMs?: number;
  readonly noEndToken?: boolean;
  /** SGLang with incremental output. */
  readonly incremental?: boolean;
  /** Replaces the probabilities of labels. */
  readonly scores?: readonly unknown[];
}

/**
 * Fields that each server knows; others are refused with 400, since the real one would ignore a misspelt one silently.
 */
const KNOWN: Readonly<Record<StubKind, ReadonlySet<string>>> = {
  'llama-server': new Set(
    (
      'prompt stream return_tokens return_progress response_fields n_predict samplers temperature top_p top_k min_p ' +
      'frequency_penalty presence_penalty repeat_last_n seed stop grammar grammar_lazy grammar_triggers preserved_tokens ' +
      'cache_prompt n_keep n_probs typical_p top_n_sigma xtc_probability dynatemp_range repeat_penalty dry_multiplier ' +
      'mirostat adaptive_target ignore_eos t_max_predict_ms n_indent backend_sampling reasoning_budget_tokens ' +
      'post_sampling_probs logit_bias'
    ).split(' '),
  ),
  vllm: new Set(
    (
      'model prompt n echo repetition_penalty min_tokens ignore_eos skip_special_tokens cache_salt stream stream_options ' +
      'return_token_ids max_tokens temperature top_p top_k min_p frequency_penalty presence_penalty seed stop ' +
      'structured_outputs logprobs logprob_token_ids return_tokens_as_token_ids'
    ).split(' '),
  ),
  sglang: new Set(
    'rid input_ids stream return_logprob sampling_params model query items label_token_ids apply_softmax item_first'.split(
      ' ',
    ),
  ),
};

/** How a stub is reached. */
export interface StubOptions {
  /** Absent: a free one. */
  readonly port?: number;
  /** A Unix socket, in place of a port of this machine. */
  readonly socket?: string;
  /** HTTPS with this pair. */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Any request without this bearer token is answered with 401. */
  readonly key?: string;
}

/** Fields that its routes for vectors and scores know. */
const POOLED: Readonly<Record<string, ReadonlySet<string>>> = {
  '/v1/embeddings': new Set(['model', 'input', 'encoding_format']),
  '/v1/rerank': new Set(['model', 'query', 'documents']),
};

const PATHS: Readonly<Record<StubKind, ReadonlySet<string>>> = {
  'llama-server': new Set(['/completion']),
  vllm: new Set(['/v1/completions']),
  sglang: new Set(['/generate', '/v1/score']),
};

/** Paths, besides those of {@link PATHS}, that each server has; others are answered with 404. */
const ABOUT: Readonly<Record<StubKind, ReadonlySet<string>>> = {
  'llama-server': new Set(['/health', '/v1/models', '/props', '/apply-template', '/tokenize']),
  vllm: new Set(['/health', '/v1/models', '/version', '/tokenize']),
  sglang: new Set(['/health', '/v1/models', '/get_model_info', '/get_server_info', '/tokenize', '/abort_request']),
};

/** A request that it computes. */
interface Running {
  readonly response: ServerResponse;
  /** As {@link Misbehaviour.goesOnMs}. */
  goesOnMs: number;
  /** What SGLang is told to call it. */
  readonly rid?: unknown;
  /** Ends it in place of its next frame. */
  readonly abort?: () => void;
  /** Sends what `hangsAfter` held back. */
  readonly resume?: () => void;
}

export class ServerStub {
  readonly kind: StubKind;
  misbehaviour: Misbehaviour = {};
  /** Requests, by their number from 0, that are answered with 503. */
  refused: ReadonlySet<number> = new Set();
  /** The bodies that it got, in their order. */
  readonly bodies: Record<string, unknown>[] = [];
  readonly aborted: unknown[] = [];
  /** Its metrics besides the running requests; undefined: they are garbage. */
  load: { waiting: number; preempted: number; kvUse: number } | undefined = { waiting: 0, preempted: 0, kvUse: 0 };
  /** Of a llama-server. */
  slots = 64;
  /** Tokens of a slot of a llama-server. */
  context = 4096;
  /** The tokens of its next reply, but for the end token. */
  reply: () => readonly number[] = () => REPLY;
  running = 0;
  readonly #running = new Set<Running>();
  /** It counts running requests only when it sends a frame, as vLLM and SGLang do in a step. */
  countLags = false;
  #counted = 0;
  /** Grows with each reading while it computes. */
  #computed = 0;
  version = '1';
  /** Token ids of a conversation, and of a text with special tokens in it. */
  tokenize: (messages: readonly ProbeMessage[]) => readonly number[] = () => [];
  tokenizeText: (text: string) => readonly number[] = () => [];
  /** The same of an input of an embedding model, and how many tokens a query has with a document. */
  tokenizeInput: (text: string) => readonly number[] = () => [];
  pairTokens: (query: string, document: string) => number = () => 0;
  readonly #options: StubOptions;
  readonly #server;

  private constructor(kind: StubKind, options: StubOptions) {
    this.kind = kind;
    this.#options = options;
    const answer = (request: IncomingMessage, response: ServerResponse): void => void this.#answer(request, response);
    this.#server = options.tls ? createTlsServer(options.tls, answer) : createServer(answer);
  }

  static async start(
    t: { teardown(fn: () => Promise<void>): void },
    kind: StubKind,
    options: StubOptions = {},
  ): Promise<ServerStub> {
    const stub = new ServerStub(kind, options);
    if (options.socket === undefined) stub.#server.listen(options.port ?? 0, '127.0.0.1');
    else stub.#server.listen(options.socket);
    await once(stub.#server, 'listening');
    t.teardown(() => stub.close());
    return stub;
  }

  /** Cuts all connections. Idempotent. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  /** Renders and tokenizes as this model does. */
  hosts(parts: PromptParts): void {
    this.tokenize = (messages) => {
      const prompt = chatPrompt(parts, { messages }, { addGenerationPrompt: true }, Infinity);
      return prompt.kind === 'prompt' ? [...promptIds(prompt.prompt)] : [];
    };
    this.tokenizeText = (text) => [...parts.vocabulary.tokenize(text, true)];
    const inputs = new InputTokenizer(parts.vocabulary);
    const all = { most: Infinity, truncate: false };
    const madeOf = (made: ReturnType<InputTokenizer['ofTexts']>) => (made.kind === 'inputs' ? made : undefined);
    this.tokenizeInput = (text) => [...(madeOf(inputs.ofTexts([text], all))?.tokens ?? [])];
    this.pairTokens = (query, document) => madeOf(inputs.ofPairs(query, [document], all))?.lengths[0] ?? 0;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `${this.#options.tls ? 'https' : 'http'}://127.0.0.1:${this.port}`;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const path = request.url ?? '';
    const json = (value: unknown): void => {
      response.setHeader('content-type', 'application/json').end(JSON.stringify(value));
    };
    const body = (): unknown => JSON.parse(Buffer.concat(chunks).toString());
    const { key } = this.#options;
    if (key !== undefined && request.headers.authorization !== `Bearer ${key}`) response.writeHead(401).end();
    else if (path === '/metrics') response.setHeader('content-type', 'text/plain').end(this.#metrics());
    else if (PATHS[this.kind].has(path)) this.#compute(body(), response);
    else if (path in POOLED && this.kind !== 'sglang') this.#pool(path, body(), response);
    else {
      const about = this.#about(path, body);
      if (about === undefined) response.writeHead(404).end();
      else json(about);
    }
  }

  /** What it says of itself and of prompts; undefined: it has no such path. */
  #about(path: string, body: () => unknown): object | undefined {
    const { kind, version } = this;
    if (!ABOUT[kind].has(path)) return undefined;
    switch (path) {
      case '/health':
        return {};
      case '/v1/models':
        return { data: [{ id: 'stub', root: 'stub', max_model_len: 4096 }] };
      case '/version':
        return { version };
      case '/props':
        return {
          total_slots: this.slots,
          default_generation_settings: { n_ctx: this.context },
          endpoint_metrics: true,
          build_info: version,
        };
      case '/get_model_info':
        return { model_path: 'stub' };
      case '/get_server_info':
        return { max_running_requests: 64, context_length: 4096, version };
      case '/apply-template':
        // Only `/tokenize` reads it.
        return { prompt: JSON.stringify(fieldsOf(body())['messages']) };
      case '/tokenize': {
        const { messages, prompt, content, ...flags } = fieldsOf(body());
        // Of an embedding model's text no special token is parsed.
        const isInput =
          kind === 'vllm' ? messages === undefined : kind === 'llama-server' && !('parse_special' in flags);
        if (isInput) return { tokens: this.tokenizeInput(textOf(content ?? prompt) ?? '') };
        if (kind === 'sglang') return { tokens: this.tokenizeText(textOf(prompt) ?? '') };
        const said = kind === 'llama-server' ? (JSON.parse(textOf(content) ?? '[]') as unknown) : messages;
        return { tokens: this.tokenize(listOf(said) as readonly ProbeMessage[]) };
      }
      case '/abort_request':
        this.#abort(String(fieldsOf(body())['rid']));
        return {};
      default:
        return undefined;
    }
  }

  /** Each request that hangs sends the rest of its reply. */
  resume(): void {
    for (const { resume } of this.#running) resume?.();
  }

  /** Settles once the connections of all that it computes are closed. */
  async left(): Promise<void> {
    const open = [...this.#running].filter(({ response }) => !response.destroyed);
    await Promise.all(open.map(({ response }) => once(response, 'close')));
  }

  /** Ends the requests whose connections were closed. Those whose connections are closed from now on end with them. */
  stopLeft(): void {
    for (const request of this.#running) {
      request.goesOnMs = 0;
      if (request.response.destroyed) this.#stop(request);
    }
  }

  /** As SGLang does: it ends each request whose name begins with this one. */
  #abort(rid: string): void {
    this.aborted.push(rid);
    for (const one of this.#running) if (typeof one.rid === 'string' && one.rid.startsWith(rid)) one.abort?.();
  }

  #metrics(): string {
    if (this.load === undefined) return '<html>';
    const { waiting, preempted, kvUse } = this.load;
    if (this.running > 0) this.#computed += 1;
    const running = this.countLags ? this.#counted : this.running;
    const names = {
      'llama-server': {
        'llamacpp:requests_processing': running,
        'llamacpp:requests_deferred': waiting,
        'llamacpp:tokens_predicted_total': this.#computed,
      },
      vllm: {
        'vllm:num_requests_running{engine="0"}': running,
        'vllm:generation_tokens_total{engine="0"}': this.#computed,
        'vllm:num_requests_waiting{engine="0"}': waiting,
        'vllm:num_preemptions_total{engine="0"}': preempted,
        'vllm:kv_cache_usage_perc{engine="0"}': kvUse,
      },
      sglang: {
        'sglang:num_running_reqs{model="m"}': running,
        'sglang:generation_tokens_total{model="m"}': this.#computed,
        'sglang:num_queue_reqs{model="m"}': waiting,
        'sglang:token_usage{model="m"}': kvUse,
      },
    }[this.kind];
    return Object.entries(names)
      .map(([name, value]) => `# TYPE x gauge\n${name} ${value}\n`)
      .join('');
  }

  /** Vectors of two numbers, or scores of at most 1, the best first: the longer an input the greater. */
  #pool(path: string, raw: unknown, response: ServerResponse): void {
    const body = fieldsOf(raw);
    if (this.#refuses(raw, POOLED[path] ?? new Set(), response)) return;
    const { frame = (one: Record<string, unknown>): unknown => one, hangsAfter } = this.misbehaviour;
    if (hangsAfter === 0) return;
    const query = textOf(body['query']) ?? '';
    const documents = listOf(body['documents']).map((each) => textOf(each) ?? '');
    const vectors = listOf(body['input']).map((each, index) => ({ index, embedding: [listOf(each).length, 1] }));
    const results = documents.map((document, index) => ({ index, relevance_score: document.length / 1000 }));
    const tokens = documents.reduce((sum, document) => sum + this.pairTokens(query, document), 0);
    const answer = path.endsWith('rerank')
      ? {
          usage: { prompt_tokens: tokens, total_tokens: tokens },
          results: results.sort((a, b) => b.relevance_score - a.relevance_score),
        }
      : { data: vectors.reverse() };
    response.setHeader('content-type', 'application/json').end(JSON.stringify(frame(answer)));
  }

  /** Keeps the body, and answers it as {@link Misbehaviour} has it. Returns whether it did. */
  #refuses(raw: unknown, known: ReadonlySet<string>, response: ServerResponse): boolean {
    const body = raw as Record<string, unknown>;
    this.bodies.push(body);
    const { status, resetAfter } = this.misbehaviour;
    const unknown = Object.keys(body).filter((name) => !known.has(name));
    if (unknown.length > 0) response.writeHead(400).end(JSON.stringify({ error: { message: unknown.join() } }));
    else if (this.refused.has(this.bodies.length - 1)) response.writeHead(503).end();
    else if (status !== undefined) response.writeHead(status).end('{"error":{"message":"PROMPT"}}');
    else if (resetAfter === 0) response.socket?.destroy();
    else return false;
    return true;
  }

  #compute(raw: unknown, response: ServerResponse): void {
    const body = raw as Record<string, unknown>;
    const { goesOnMs = 0 } = this.misbehaviour;
    if (this.#refuses(raw, KNOWN[this.kind], response)) return;
    if (body['stream'] === true) this.#stream(body, response);
    else {
      this.#begin({ response, goesOnMs });
      response.setHeader('content-type', 'application/json').end(JSON.stringify(this.#score(body)));
    }
  }

  #begin(request: Running): void {
    this.running += 1;
    this.#running.add(request);
    const { response } = request;
    response.on('close', () => {
      const { goesOnMs } = request;
      if (response.writableFinished || goesOnMs === 0) this.#stop(request);
      else if (goesOnMs < Infinity) setTimeout(() => this.#stop(request), goesOnMs);
    });
  }

  /** Idempotent. */
  #stop(request: Running): void {
    if (this.#running.delete(request)) this.running -= 1;
  }

  #stream(body: Record<string, unknown>, response: ServerResponse): void {
    const { frames = {}, frame, cut, lineEnd = '\n', staysOpen, hangsAfter = Infinity } = this.misbehaviour;
    const { resetAfter = Infinity, endAfter = Infinity, goesOnMs = 0 } = this.misbehaviour;
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const regular = this.#frames(body).map((one) => JSON.stringify(frame ? frame(one) : one));
    const all = this.kind === 'llama-server' ? regular : [...regular, '[DONE]'];
    for (const [at, text] of Object.entries(frames)) all[Number(at)] = text;
    const framed = (text: string): string =>
      text.startsWith('half:') ? text.slice(5) : `: ping${lineEnd}data: ${text}${lineEnd}${lineEnd}`;
    const request: Running = {
      response,
      goesOnMs,
      rid: body['rid'],
      abort: () => {
        this.#stop(request);
        const aborted = this.#frames(body)[hangsAfter];
        const info = { ...fieldsOf(aborted?.['meta_info']), finish_reason: { type: 'abort' } };
        response.end(framed(JSON.stringify({ ...aborted, meta_info: info })));
      },
      resume: () => response.end(all.slice(hangsAfter).map(framed).join('')),
    };
    this.#begin(request);
    const texts = all.slice(0, Math.min(resetAfter, endAfter, hangsAfter)).map(framed);
    const bytes = Buffer.from(texts.join(''));
    if (cut === 'bytes') for (const byte of bytes) response.write(Uint8Array.of(byte));
    else if (cut === 'whole') response.write(bytes);
    else for (const text of texts) response.write(text);
    // In the step of its last token it is not counted any more.
    this.#counted = this.running - (hangsAfter < all.length ? 0 : 1);
    const { pings } = this.misbehaviour;
    if (pings !== undefined && hangsAfter < all.length) {
      const again = setInterval(() => response.write(pings(promptTokensOf(body))), PING_MS);
      response.on('close', () => clearInterval(again));
    }
    if (hangsAfter < all.length) return;
    if (resetAfter < all.length) setTimeout(() => response.socket?.destroy(), 20);
    else if (staysOpen !== true) response.end();
  }

  #frames(body: Record<string, unknown>): Record<string, unknown>[] {
    const reply = this.reply();
    const tokens = this.misbehaviour.noEndToken === true ? [...reply] : [...reply, END];
    const prompt = promptTokensOf(body);
    const completion = reply.length + 1;
    switch (this.kind) {
      case 'llama-server':
        return [
          {
            tokens: [0],
            content: '',
            stop: false,
            prompt_progress: { total: prompt, cache: CACHED, processed: prompt },
          },
          ...tokens.map((token, at) => ({ tokens: [token], content: '', stop: false, tokens_predicted: at + 1 })),
          {
            stop: true,
            stop_type: 'eos',
            tokens_predicted: completion,
            tokens_evaluated: prompt,
            timings: { cache_n: CACHED },
          },
        ];
      case 'vllm':
        return [
          ...tokens.map((token, at) => ({
            id: 'cmpl-1',
            choices: [
              { index: 0, text: 'x', token_ids: [token], finish_reason: at === tokens.length - 1 ? 'stop' : null },
            ],
          })),
          {
            choices: [],
            usage: {
              prompt_tokens: prompt,
              completion_tokens: completion,
              prompt_tokens_details: { cached_tokens: CACHED },
            },
          },
        ];
      case 'sglang':
        return tokens.map((token, at) => {
          const last = at === tokens.length - 1;
          return {
            text: 'x',
            output_ids: this.misbehaviour.incremental === true ? [token] : tokens.slice(0, at + 1),
            meta_info: {
              prompt_tokens: prompt,
              completion_tokens: last ? (this.misbehaviour.noEndToken === true ? at + 1 : completion) : at + 1,
              cached_tokens: CACHED,
              finish_reason: last ? { type: 'stop', matched: END } : null,
            },
          };
        });
    }
  }

  #score(body: Record<string, unknown>): unknown {
    const labels = listOf(body['label_token_ids'] ?? body['logprob_token_ids']);
    const { scores = [0.5, 0.25] } = this.misbehaviour;
    const logs = scores.map((score) => (typeof score === 'number' ? Math.log(score) : score));
    if (this.kind === 'sglang') return { scores: [scores], usage: {} };
    if (this.kind === 'vllm') {
      const top = Object.fromEntries(labels.map((label, at) => [`token_id:${String(label)}`, logs[at]]));
      const usage = { prompt_tokens: listOf(body['prompt']).length, completion_tokens: 1 };
      return { choices: [{ logprobs: { top_logprobs: [top] } }], usage };
    }
    // The requested token, and one with a higher probability.
    const chosen = listOf(listOf(body['logit_bias'])[0])[0];
    return {
      tokens_evaluated: listOf(body['prompt']).length,
      'timings/cache_n': CACHED,
      completion_probabilities: [
        { id: chosen, logprob: logs[chosen === 20 ? 0 : 1], top_logprobs: [{ id: 99, logprob: -0.1 }] },
      ],
    };
  }
}

function promptTokensOf(body: Record<string, unknown>): number {
  return listOf(body['prompt'] ?? body['input_ids']).length;
}
