/**
 * Vectors of a model that an external server computes: `/v1/embeddings` of llama-server or vLLM, with lists of tokens. It takes the place
 * of llama.cpp's context below the loop of our own engine (scheduler/pooling-loop.ts), which divides the server's time between accounts: a
 * step is one request, and no second one is sent before its answer.
 */
import { createHash } from 'node:crypto';
import { LoadFailure } from '../llama/load-failure.js';
import { loadTokenFile } from '../llama/model-tokens.js';
import { InputTokenizer } from '../prompt/input-tokens.js';
import { promptVersionOf } from '../prompt/prompt-parts.js';
import type { ServedModel } from '../protocol/inspect-messages.js';
import type { Clock } from '../protocol/clock.js';
import type { EngineFacts, RemoteSetup } from '../protocol/setup.js';
import { EngineFault } from '../scheduler/faults.js';
import type { Pooling, PoolingLimits } from '../scheduler/pooling-loop.js';
import { ASK_MS, type Adapter, type ServerFacts } from './adapter.js';
import { fieldsOf, listOf, numberOf, textOf, tokensOf, isBusy } from './server-answers.js';
import type { ServerClient } from './server-client.js';
import { aboutServer, connect, factsOfOpened, waitForServer } from './start.js';

/** Of a step: a request of a few milliseconds or more, so that the time between two is small beside it. */
const STEP_TOKENS = 8192;
const STEP_INPUTS = 64;

/** A server that refuses because of its load is asked again after this long, ms. */
const AGAIN_MS = 200;

/** Texts of our own, which show most differences of tokenizers. */
const PROBES = [
  'What is the capital of France?',
  'naïve café, 東京, Привет, 🙂; 3.14159 + 0x2A = ?\n\n\tif (a[i] != b)   done',
];

/** A server that makes vectors of the file's tokens. */
export interface StartedPooling {
  readonly adapter: Pick<Adapter, 'open'>;
  readonly server: ServerFacts;
  readonly pooling: Pooling;
  readonly limits: PoolingLimits;
  readonly facts: EngineFacts;
}

/** What a start needs besides its setup. */
export interface StartOptions {
  readonly clock: Clock;
  /** Called with the reason while the server cannot be asked yet. Absent: it is asked once. */
  readonly waits?: (reason: string) => void;
  /** Asks whether the server is still the same. Once it is not, the process ends. */
  readonly suspect: () => Promise<void>;
}

/** Waits for the server, if asked to. Rejects with a {@link LoadFailure} if it cannot serve the model as it is set up. */
export async function startRemotePooling(
  setup: ServedModel,
  remote: RemoteSetup,
  { clock, waits, suspect }: StartOptions,
): Promise<StartedPooling> {
  const { client, adapter } = connect(remote);
  const opened = await (waits ? waitForServer(adapter, remote, clock, waits) : adapter.open());
  const server = factsOfOpened(remote, opened);
  const { vocabulary, name } = await loadTokenFile(setup.file);
  const unfit = (why: string): LoadFailure => new LoadFailure(aboutServer(remote, why), true);
  const { contextPerSeat, seats } = setup;
  const { contextPerSlot = Infinity } = server;
  if (contextPerSlot < contextPerSeat)
    throw unfit(`its sequences have ${contextPerSlot} tokens, fewer than contextPerSeat (${contextPerSeat})`);
  const model = remote.model ?? (await firstModel(client));
  if (model === undefined) throw unfit('it lists no model');
  const probes = new InputTokenizer(vocabulary).ofInputs(PROBES, { most: Infinity, truncate: false });
  if (probes.kind !== 'inputs') throw new LoadFailure('the file makes no tokens of plain text');
  const differs = await compareTokens(client, remote, model, probes);
  if (differs !== undefined) throw unfit(differs);
  const pooling = new RemotePooling({ client, clock, remote, model, suspect });
  const problem = await pooling.probe(probes.tokens.subarray(0, probes.lengths[0]));
  if (problem !== undefined) throw unfit(`it makes no vectors (${problem}): is it started with --embedding?`);
  return {
    adapter,
    server,
    pooling,
    limits: { stepTokens: STEP_TOKENS, stepInputs: STEP_INPUTS, contextPerSeat, vocabulary: vocabulary.size },
    facts: {
      model: name,
      seats,
      contextPerSeat,
      vocabulary: vocabulary.size,
      weightVersion: createHash('sha256').update(`${remote.kind}\n${server.identity}`).digest('hex'),
      promptVersion: promptVersionOf(vocabulary.hash),
      labelsVerified: false,
      threads: 0,
      gpu: remote.kind,
      width: pooling.width,
    },
  };
}

interface RemotePoolingParts extends Pick<StartOptions, 'clock' | 'suspect'> {
  readonly client: ServerClient;
  readonly remote: RemoteSetup;
  /** What the server calls the model. */
  readonly model: string;
}

class RemotePooling implements Pooling {
  readonly #parts: RemotePoolingParts;
  #width = 0;

  constructor(parts: RemotePoolingParts) {
    this.#parts = parts;
  }

  get width(): number {
    return this.#width;
  }

  /** Learns the width from a first vector. Returns why there is none. */
  async probe(tokens: Uint32Array): Promise<string | undefined> {
    const values = await this.#ask(tokens, Uint32Array.of(tokens.length));
    if (typeof values === 'string') return values;
    this.#width = values.length;
    return undefined;
  }

  async decode(tokens: Uint32Array, lengths: Uint32Array): Promise<Float32Array> {
    const until = this.#parts.clock.now() + this.#parts.remote.silentMs;
    for (;;) {
      const values = await this.#ask(tokens, lengths);
      if (typeof values !== 'string') {
        if (values.length !== lengths.length * this.width)
          throw new EngineFault('the server sends other vectors than before');
        return values;
      }
      if (values === 'gone') await this.#parts.suspect();
      if (values !== 'busy' || this.#parts.clock.now() > until)
        throw new EngineFault(`the server makes no vectors (${values})`);
      await new Promise<void>((again) => this.#parts.clock.after(AGAIN_MS, again));
    }
  }

  clear(): void {
    // What the server keeps is not this process's.
  }

  /** Vectors of length 1; or why there are none: `busy`, `gone`, or a text without content. */
  async #ask(tokens: Uint32Array, lengths: Uint32Array): Promise<Float32Array | string> {
    const input: number[][] = [];
    let at = 0;
    for (const length of lengths) input.push(Array.from(tokens.subarray(at, (at += length))));
    const { client, model, remote } = this.#parts;
    const body = { model, input, encoding_format: 'float' };
    const answer = await client.ask('POST', '/v1/embeddings', remote.silentMs, body);
    switch (answer.kind) {
      case 'status':
        return isBusy(answer.status) ? 'busy' : `it answers ${answer.status}`;
      case 'text':
        return 'its answer is no JSON';
      case 'absent':
        return 'gone';
      case 'failed':
        return answer.why === 'timeout' || answer.why === 'too long' ? answer.why : 'gone';
      case 'json':
        return vectorsOf(answer.value, lengths.length) ?? 'its answer has not a vector of numbers for each input';
    }
  }
}

/** The vectors in the order of their inputs, each of length 1; undefined if the answer is another one. */
function vectorsOf(answer: unknown, inputs: number): Float32Array | undefined {
  const data = listOf(fieldsOf(answer)['data']).map(fieldsOf);
  const vectors = data.map(({ embedding }) => listOf(embedding).map(numberOf));
  const width = vectors[0]?.length ?? 0;
  if (vectors.length !== inputs || width === 0) return undefined;
  const values = new Float32Array(inputs * width);
  for (const [i, { index }] of data.entries()) {
    const vector = vectors[i] ?? [];
    const place = numberOf(index) ?? NaN;
    if (!(place >= 0 && place < inputs) || vector.length !== width) return undefined;
    const length = Math.hypot(...vector.map((value) => value ?? NaN));
    if (Number.isNaN(length)) return undefined;
    values.set(
      vector.map((value) => (length > 0 ? (value ?? 0) / length : 0)),
      place * width,
    );
  }
  return values;
}

/** What the server calls the first model that it lists; undefined if it lists none. */
async function firstModel(client: ServerClient): Promise<string | undefined> {
  const listed = await client.ask('GET', '/v1/models', ASK_MS);
  return listed.kind === 'json' ? textOf(fieldsOf(listOf(fieldsOf(listed.value)['data'])[0])['id']) : undefined;
}

/** How the server's tokens of our own texts differ from the file's, in one line; undefined if they do not. */
async function compareTokens(
  client: ServerClient,
  { kind }: RemoteSetup,
  model: string,
  { tokens, lengths }: { readonly tokens: Uint32Array; readonly lengths: Uint32Array },
): Promise<string | undefined> {
  let at = 0;
  for (const [i, text] of PROBES.entries()) {
    const ours = tokens.subarray(at, (at += lengths[i] ?? 0));
    const body =
      kind === 'llama-server'
        ? { content: text, add_special: true }
        : { model, prompt: text, add_special_tokens: true };
    const answer = await client.ask('POST', '/tokenize', ASK_MS, body);
    const theirs = answer.kind === 'json' ? tokensOf(fieldsOf(answer.value)['tokens']) : undefined;
    if (theirs === undefined) return 'it does not tokenize the probes';
    if (ours.length !== theirs.length || !ours.every((token, j) => token === theirs[j]))
      return `its tokens of a text are not those of the file (${ours.length} here, ${theirs.length} there)`;
  }
  return undefined;
}
