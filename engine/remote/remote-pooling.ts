/**
 * Vectors and scores that an external server computes: `/v1/embeddings` of llama-server or vLLM, with lists of tokens, and `/v1/rerank`, with
 * texts, since neither takes tokens there. It takes the place of llama.cpp's context below the loop of our own engine
 * (scheduler/pooling-loop.ts), which divides the server's time between accounts: a step is one request, or one for each query, and no
 * second one is sent before its answer.
 */
import { createHash } from 'node:crypto';
import { LoadFailure } from '../llama/load-failure.js';
import { loadTokenFile } from '../llama/model-tokens.js';
import { InputTokenizer } from '../prompt/input-tokens.js';
import { promptVersionOf } from '../prompt/prompt-parts.js';
import type { ServedModel } from '../protocol/inspect-messages.js';
import type { PairTexts } from '../protocol/jobs.js';
import type { Clock } from '../protocol/clock.js';
import type { EngineFacts, RemoteSetup, ScoreScale } from '../protocol/setup.js';
import { EngineFault } from '../scheduler/faults.js';
import type { Pooling, PoolingLimits } from '../scheduler/pooling-loop.js';
import { ASK_MS, type Adapter, type ServerFacts } from './adapter.js';
import { countOf, fieldsOf, listOf, numberOf, textOf, tokensOf, isBusy } from './server-answers.js';
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
] as const;

/** A server that makes vectors or scores of the file's tokens. */
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
  const { vocabulary, scores: fileScores } = await loadTokenFile(setup.file);
  const unfit = (why: string): LoadFailure => new LoadFailure(aboutServer(remote, why), true);
  const { contextPerSeat, seats, kind } = setup;
  const { contextPerSlot = Infinity } = server;
  if (contextPerSlot < contextPerSeat)
    throw unfit(`its sequences have ${contextPerSlot} tokens, fewer than contextPerSeat (${contextPerSeat})`);
  const model = remote.model ?? (await firstModel(client));
  if (model === undefined) throw unfit('it lists no model');
  // vLLM answers with probabilities unless its configuration turns that off.
  const scores = kind === 'rerank' ? (remote.kind === 'vllm' ? 'probability' : fileScores) : undefined;
  const pooling = new RemotePooling({ client, clock, remote, model, suspect, scores });
  const problem = await pooling.probe(new InputTokenizer(vocabulary));
  if (problem !== undefined) throw unfit(problem);
  return {
    adapter,
    server,
    pooling,
    limits: { stepTokens: STEP_TOKENS, stepInputs: STEP_INPUTS, contextPerSeat, vocabulary: vocabulary.size },
    facts: {
      seats,
      contextPerSeat,
      vocabulary: vocabulary.size,
      weightVersion: createHash('sha256').update(`${remote.kind}\n${server.identity}`).digest('hex'),
      promptVersion: promptVersionOf(vocabulary.hash),
      threads: 0,
      gpu: remote.kind,
      width: pooling.width,
      ...(scores && { scores }),
    },
  };
}

interface RemotePoolingParts extends Pick<StartOptions, 'clock' | 'suspect'> {
  readonly client: ServerClient;
  readonly remote: RemoteSetup;
  /** What the server calls the model. */
  readonly model: string;
  /** Undefined: it makes vectors. */
  readonly scores: ScoreScale | undefined;
}

/** One request to the server, and how its answer is read: undefined if it is not what it should be. */
interface Question {
  readonly path: string;
  readonly body: object;
  readonly read: (answer: unknown) => Float32Array | undefined;
}

class RemotePooling implements Pooling {
  readonly #parts: RemotePoolingParts;
  /** Undefined before the first answer. */
  #width: number | undefined;

  constructor(parts: RemotePoolingParts) {
    this.#parts = parts;
  }

  get width(): number {
    return this.#width ?? 1;
  }

  /** Compares its tokens of our own texts with the file's, and learns the width. Returns why it cannot be used. */
  async probe(inputs: InputTokenizer): Promise<string | undefined> {
    const all = { most: Infinity, truncate: false };
    const { client, remote, model, scores } = this.#parts;
    if (scores !== undefined) {
      const [query, document] = PROBES;
      const made = inputs.ofPairs(query, [document], all);
      const question = this.#scored({ query, documents: [document] });
      let theirs: number | undefined;
      const found = await this.#ask({
        ...question,
        read: (answer) => {
          const { total_tokens: total, prompt_tokens: prompt } = fieldsOf(fieldsOf(answer)['usage']);
          theirs = countOf(total) ?? countOf(prompt);
          return question.read(answer);
        },
      });
      if (typeof found === 'string') return `it makes no scores (${found}): is it started as a reranker?`;
      const [ours] = made.kind === 'inputs' ? made.lengths : [];
      return ours === theirs
        ? undefined
        : `its tokens of a pair are not those of the file (${ours} here, ${theirs} there)`;
    }
    const made = inputs.ofTexts(PROBES, all);
    if (made.kind !== 'inputs') return 'the file makes no tokens of plain text';
    const differs = await compareTokens(client, remote, model, made);
    if (differs !== undefined) return differs;
    const [first = 0] = made.lengths;
    const found = await this.#ask(this.#vectors(made.tokens.subarray(0, first), Uint32Array.of(first)));
    if (typeof found === 'string') return `it makes no vectors (${found}): is it started with --embedding?`;
    this.#width = found.length;
    return undefined;
  }

  async decode(tokens: Uint32Array, lengths: Uint32Array, pairs: readonly PairTexts[]): Promise<Float32Array> {
    if (this.#parts.scores === undefined) return await this.#patient(this.#vectors(tokens, lengths));
    const scores: number[] = [];
    for (const pair of pairs) scores.push(...(await this.#patient(this.#scored(pair))));
    return Float32Array.from(scores);
  }

  clear(): void {
    // What the server keeps is not this process's.
  }

  #vectors(tokens: Uint32Array, lengths: Uint32Array): Question {
    const input: number[][] = [];
    let at = 0;
    for (const length of lengths) input.push(Array.from(tokens.subarray(at, (at += length))));
    return {
      path: '/v1/embeddings',
      body: { model: this.#parts.model, input, encoding_format: 'float' },
      read: (answer) => vectorsOf(answer, lengths.length, this.#width),
    };
  }

  #scored({ query, documents }: PairTexts): Question {
    const { model, scores } = this.#parts;
    return {
      path: '/v1/rerank',
      body: { model, query, documents },
      read: (answer) => scoresIn(answer, documents.length, scores),
    };
  }

  /** A server that is busy is asked again for some time. */
  async #patient(question: Question): Promise<Float32Array> {
    const { clock, remote, suspect } = this.#parts;
    const until = clock.now() + remote.silentMs;
    for (;;) {
      const values = await this.#ask(question);
      if (typeof values !== 'string') return values;
      if (values === 'gone') await suspect();
      if (values !== 'busy' || clock.now() > until)
        throw new EngineFault(`the server makes no vectors or scores (${values})`);
      await new Promise<void>((again) => clock.after(AGAIN_MS, again));
    }
  }

  /** Results; or why there are none: `busy`, `gone`, or a text without content. */
  async #ask({ path, body, read }: Question): Promise<Float32Array | string> {
    const { client, remote } = this.#parts;
    const answer = await client.ask('POST', path, remote.silentMs, body);
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
        return read(answer.value) ?? 'its answer has not a result for each input';
    }
  }
}

/** The scores in the order of their documents; undefined if the answer is another one. */
function scoresIn(answer: unknown, documents: number, scale: ScoreScale | undefined): Float32Array | undefined {
  const results = listOf(fieldsOf(answer)['results']).map(fieldsOf);
  const scores = new Float32Array(documents).fill(NaN);
  for (const { index, relevance_score: score } of results) scores[countOf(index) ?? documents] = numberOf(score) ?? NaN;
  const isGood = scale === 'logit' ? Number.isFinite : (score: number) => score >= 0 && score <= 1;
  return results.length === documents && scores.every(isGood) ? scores : undefined;
}

/** The vectors in the order of their inputs, each of length 1; undefined if the answer is another one. `known`: the width, if it is. */
function vectorsOf(answer: unknown, inputs: number, known: number | undefined): Float32Array | undefined {
  const data = listOf(fieldsOf(answer)['data']).map(fieldsOf);
  const vectors = data.map(({ embedding }) => listOf(embedding).map(numberOf));
  const width = known ?? vectors[0]?.length ?? 0;
  if (vectors.length !== inputs || width === 0) return undefined;
  const values = new Float32Array(inputs * width).fill(NaN);
  for (const [i, { index }] of data.entries()) {
    const vector = vectors[i] ?? [];
    const place = countOf(index) ?? inputs;
    if (place >= inputs || vector.length !== width) return undefined;
    const length = Math.hypot(...vector.map((value) => value ?? NaN));
    values.set(
      vector.map((value) => (length > 0 ? (value ?? NaN) / length : (value ?? NaN))),
      place * width,
    );
  }
  return values.every(Number.isFinite) ? values : undefined;
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
