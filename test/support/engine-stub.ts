/**
 * A stub of the engine’s child process: it speaks engine/protocol/messages.ts, and does what a {@link StubScript} and
 * its jobs select.
 */
import { writeSync } from 'node:fs';
import { connect } from 'node:net';
import { basename } from 'node:path';
import { pack } from '../../engine/protocol/link.js';
import { fileKey } from '../../engine/protocol/file-key.js';
import { Link } from '../../engine/protocol/link.js';
import { ENGINE_EXIT, PROTOCOL_VERSION as v, type FromEngine, type ToEngine } from '../../engine/protocol/messages.js';
import type { EngineFacts, EngineSetup } from '../../engine/protocol/setup.js';
import type { EmbedJob, GenerateJob, ReplyLimit, ScoreJob, Output } from '../../engine/protocol/jobs.js';
import { prefixHashes } from '../../engine/protocol/cache-key.js';
import {
  FLOOD_BYTES,
  HELD_CACHE,
  HELD_TOKENS,
  PACED_MS,
  REUSED_TOKENS,
  SLOW_LIST_MS,
  STEADY_MS,
  STUB_JOB,
  STUB_TOP_K,
  STUB_WIDTH,
  type StubScript,
} from './stub-script.js';
import { imagesOf, promptIds, promptLength } from '../../engine/protocol/prompt.js';

/** Of the link, in this process. */
const LINK_FD = 3;

let step = 0;
/** Scopes that it was told to forget. */
let forgets = 0;
let script: StubScript = {};
/** Of its results, where its model makes vectors or scores. */
let width: number | undefined;
const live = new Map<number, 'hold' | 'queued' | 'stuck'>();
const late = new Set<number>();
/** Paced jobs: tokens of the prompt, and when the first of the reply came. */
const paces = new Map<number, { readonly prompt: number; readonly since: number }>();
/** Jobs that wait for embeddings, and of how many images. */
const looks = new Map<number, { left: number }>();
/** Steady jobs: tokens made, and all of them. */
const steadies = new Map<number, { made: number; readonly all: number }>();
/** Growing jobs: tokens made, and all of them. */
const growing = new Map<number, { made: number; readonly all: number }>();
/** Jobs that flood, the least recently served first. */
const floods = new Set<number>();
const FLOODS_A_TICK = 8;
const FLOOD = 'x'.repeat(FLOOD_BYTES);

function send(message: FromEngine | Record<string, unknown>): void {
  link.send(message);
}

/** Its weights are to be hashed. */
let opened: EngineSetup | undefined;

function open(setup: EngineSetup): void {
  opened = setup;
  const key = fileKey(setup.file);
  send({ v, kind: 'opens', ...(key !== undefined && { key }) });
}

function emit(...outputs: Output[]): void {
  step += 1;
  send({ v, kind: 'step', step, outputs, held: [] });
}

function start(setup: EngineSetup): void {
  script = JSON.parse(basename(setup.file)) as StubScript;
  if (script.steady) for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM']) process.on(signal, () => undefined);
  if (script.lifeline !== undefined) connect(script.lifeline, '127.0.0.1').on('error', () => undefined);
  setInterval(
    () => send({ v, kind: 'heartbeat', step, live: live.size, tokens: heldTokens(), cache: heldCache() }),
    setup.heartbeatMs,
  );
  if (setup.kind === 'embedding') width = script.width ?? STUB_WIDTH;
  if (setup.kind === 'rerank') width = 1;
  const facts: EngineFacts = {
    seats: setup.seats,
    contextPerSeat: setup.contextPerSeat,
    vocabulary: 256,
    weightVersion: setup.weights?.version ?? 'stub',
    threads: 1,
    gpu: false,
    ...(script.confirmsCancels && { confirmsCancels: true }),
    ...(width !== undefined && { width }),
    ...(width === 1 && { scores: 'logit' as const }),
  };
  if (script.gpus && triesGpu(setup, script.gpus)) return;
  switch (script.start ?? 'ready') {
    case 'silent':
      return;
    case 'unable':
      send({ v, kind: 'unable', reason: 'the file\nis not a model', mayMend: false });
      return;
    case 'unable-now':
      send({ v, kind: 'unable', reason: 'no memory', mayMend: true });
      return;
    case 'wrong-version':
      send({ v: v + 1, kind: 'ready', facts });
      return;
    case 'step-first':
      emit();
      return;
    case 'exit':
      process.exit(3);
      break;
    case 'abort':
      process.stderr.write('GGML_ASSERT(n > 0) failed\n');
      process.abort();
      break;
    case 'ready-twice':
      // In one write, so that both are read in one turn.
      writeSync(LINK_FD, Buffer.concat([1, 2].flatMap(() => pack({ v, kind: 'ready', facts }))));
      return;
    case 'ready':
  }
  send({ v, kind: 'ready', facts });
}

/** Whether there is a backend that it may use, which then fails. */
function triesGpu(
  { gpu, failedBackends = [] }: EngineSetup,
  { names, fail }: NonNullable<StubScript['gpus']>,
): boolean {
  const backend = gpu === 'auto' ? names.find((name) => !failedBackends.includes(name)) : gpu;
  if (backend === undefined || backend === false) return false;
  send({ v, kind: 'tries', backend });
  if (fail === 'no-step') send({ v, kind: 'unable', reason: 'cannot decode: no kernel', mayMend: true, noStep: true });
  else if (fail === 'no-memory') send({ v, kind: 'unable', reason: 'failed to allocate', mayMend: true, noStep: true });
  else {
    if (fail === 'on-cpu') send({ v, kind: 'tries', backend: false });
    process.stderr.write('CUDA error: the provided PTX was compiled with an unsupported toolchain.\n');
    process.abort();
  }
  return true;
}

/** Empty steps and those of floods, while there are jobs: without any it takes no processor time. */
let ticking: NodeJS.Timeout | undefined;

function tick(): void {
  if (live.size + late.size === 0) {
    clearInterval(ticking);
    ticking = undefined;
  }
  const moving = [...live.values()].some((how) => how !== 'stuck');
  const served = [...floods].slice(0, FLOODS_A_TICK);
  for (const id of served) {
    floods.delete(id);
    floods.add(id);
  }
  const outputs = [...[...late].map((id) => piece(id, 0, 'late', 1)), ...served.map((id) => piece(id, 0, FLOOD, 1))];
  if (moving || outputs.length > 0) emit(...outputs);
}

let beating = false;

/** While there are steady jobs, one step of all of them at each multiple of STEADY_MS, however late a timer is. */
async function beat(): Promise<void> {
  beating = true;
  for (let due = performance.now() + STEADY_MS; steadies.size > 0; due += STEADY_MS) {
    await new Promise((next) => setTimeout(next, Math.max(0, due - performance.now())));
    const outputs = [...steadies].flatMap(([id, job]): Output[] => {
      job.made += 1;
      const text = piece(id, 0, ' steady', job.made);
      if (job.made < job.all) return [text];
      steadies.delete(id);
      const end = { reason: 'length', completionTokens: job.all, reasoningTokens: 0 } as const;
      return [text, { id, kind: 'finished', choice: 0, ...end }, { id, kind: 'done' }];
    });
    if (outputs.length > 0) emit(...outputs);
  }
  beating = false;
}

function piece(id: number, choice: number, text: string, tokens: number): Output {
  return { id, kind: 'piece', choice, channel: 'content', text, tokens };
}

function started(id: number, cachedTokens = 0): void {
  emit({ id, kind: 'started', cachedTokens });
}

function echo(id: number, job: GenerateJob, cachedTokens = 0): void {
  started(id, cachedTokens);
  const texts = Array.from(promptIds(job.prompt).subarray(1), (token) => `p${token}`);
  for (let choice = 0; choice < job.n; choice += 1) {
    texts.forEach((text, i) => emit(piece(id, choice, text, i + 1)));
    emit({
      id,
      kind: 'finished',
      choice,
      reason: 'stop',
      matchedStop: 2,
      completionTokens: texts.length,
      reasoningTokens: 0,
    });
  }
  step += 1;
  const held = [{ sequence: 0, hashes: prefixHashes(promptIds(job.prompt), job.scope) }];
  send({ v, kind: 'step', step, outputs: [{ id, kind: 'done' }], held });
}

/** Wants each image of the prompt, then echoes. */
function look(id: number, job: GenerateJob): void {
  const images = imagesOf(job.prompt).map((_, image) => image);
  if (images.length === 0) {
    echo(id, job);
    return;
  }
  looks.set(id, { left: images.length });
  live.set(id, 'hold');
  started(id);
  emit(...images.map((image): Output => ({ id, kind: 'needsImage', image })));
}

function seen(id: number): void {
  const looking = looks.get(id);
  if (!looking) return;
  looking.left -= 1;
  if (looking.left > 0) return;
  looks.delete(id);
  live.delete(id);
  emit(
    piece(id, 0, 'seen', 1),
    { id, kind: 'finished', choice: 0, reason: 'stop', completionTokens: 1, reasoningTokens: 0 },
    { id, kind: 'done' },
  );
}

function clocked(id: number, holdMs: number): void {
  const came = process.hrtime.bigint();
  started(id);
  const end = (): void =>
    emit(
      piece(id, 0, String(came), 1),
      { id, kind: 'finished', choice: 0, reason: 'stop', completionTokens: 1, reasoningTokens: 0 },
      { id, kind: 'done' },
    );
  if (holdMs === 0) end();
  else setTimeout(end, holdMs);
}

function paced(id: number, { prompt, maxTokens }: GenerateJob): void {
  paces.set(id, { prompt: promptLength(prompt), since: performance.now() });
  started(id);
  emit(piece(id, 0, 'paced', 1));
  setTimeout(() => {
    if (!paces.delete(id)) return;
    emit(
      { id, kind: 'finished', choice: 0, reason: 'length', completionTokens: maxTokens, reasoningTokens: 0 },
      { id, kind: 'done' },
    );
  }, maxTokens * PACED_MS);
}

/** Begins a growing job. */
function begin(id: number, job: GenerateJob): void {
  growing.set(id, { made: 0, all: job.maxTokens });
  started(id);
  grow(id, { tokens: job.limit ?? job.maxTokens, last: job.limit === undefined });
}

/** Makes the tokens of a growing job up to a limit. */
function grow(id: number, { tokens, last }: ReplyLimit): void {
  const job = growing.get(id);
  if (!job) return;
  const outputs: Output[] = tokens > job.made ? [piece(id, 0, ' grown', tokens)] : [];
  job.made = tokens;
  if (last || tokens >= job.all) {
    growing.delete(id);
    const end = { reason: 'length', completionTokens: tokens, reasoningTokens: 0 } as const;
    outputs.push({ id, kind: 'finished', choice: 0, ...end }, { id, kind: 'done' });
  } else outputs.push({ id, kind: 'needsTokens', choice: 0, tokens });
  emit(...outputs);
}

function heldCache(): typeof HELD_CACHE {
  const { evictions } = HELD_CACHE;
  return { ...HELD_CACHE, evictions: { ...evictions, forgotten: evictions.forgotten + forgets } };
}

function heldTokens(): { running: number; kept: number } {
  const now = performance.now();
  const held = [...paces.values()].map(({ prompt, since }) => prompt + Math.ceil((now - since) / PACED_MS));
  return held.length === 0 ? HELD_TOKENS : { running: held.reduce((sum, tokens) => sum + tokens, 0), kept: 0 };
}

function slow(id: number, steps: number): void {
  started(id);
  let left = steps;
  const timer = setInterval(() => {
    left -= 1;
    if (left > 0) {
      emit();
      return;
    }
    clearInterval(timer);
    emit(
      { id, kind: 'finished', choice: 0, reason: 'length', completionTokens: 0, reasoningTokens: 0 },
      { id, kind: 'done' },
    );
  }, 5);
}

function score(id: number, job: ScoreJob): void {
  started(id);
  job.questions.forEach(({ labels }, question) => {
    const probabilities = Float64Array.from(labels, () => 1 / labels.length);
    emit({ id, kind: 'answer', question, probabilities, labelMass: 0.5 });
  });
  emit({ id, kind: 'done' });
}

/** A result for each input, one message each; the first token of an input selects what becomes of the job there. */
function embed(id: number, { tokens, lengths }: EmbedJob): void {
  started(id);
  let [at, endsMs] = [0, 0];
  for (const length of lengths) {
    const first = tokens[at] ?? 0;
    at += length;
    if (first === STUB_JOB.hold) {
      live.set(id, 'hold');
      return;
    }
    if (first === STUB_JOB.fail) {
      emit({ id, kind: 'failed', reason: 'no room' });
      return;
    }
    if (first === STUB_JOB.segv) process.kill(process.pid, 'SIGSEGV');
    if (first === STUB_JOB.paced) endsMs = SLOW_LIST_MS;
    const values = new Float32Array(width ?? STUB_WIDTH).map((_, i) => (i === 0 ? length / 64 : 0.25));
    emit({ id, kind: 'vectors', count: 1, values });
  }
  if (endsMs === 0) emit({ id, kind: 'done' });
  else setTimeout(() => emit({ id, kind: 'done' }), endsMs);
}

function everything(id: number): void {
  started(id, REUSED_TOKENS);
  const texts = [
    ['reasoning', 'Hm'],
    ['reasoning', ', so.'],
    ['content', 'It '],
    ['content', 'is.'],
  ] as const;
  texts.forEach(([channel, text], i) => emit({ id, kind: 'piece', choice: 0, channel, text, tokens: i + 1 }));
  emit({ id, kind: 'call', choice: 0, index: 0, name: 'look', arguments: '', tokens: 5 });
  for (const part of ['{"at": 1.0, ', '"2": "b"}'])
    emit({ id, kind: 'call', choice: 0, index: 0, arguments: part, tokens: 7 });
  emit(
    { id, kind: 'finished', choice: 0, reason: 'tool_calls', completionTokens: 8, reasoningTokens: 3 },
    { id, kind: 'done' },
  );
}

function generate(id: number, job: GenerateJob): void {
  const { topK = 0, seed } = job;
  const chosen = topK >= STUB_TOP_K ? topK - STUB_TOP_K : seed;
  const selected = script.bySeed === true || script.steady ? chosen : promptIds(job.prompt)[0];
  switch (script.steady && selected !== STUB_JOB.hold ? STUB_JOB.steady : selected) {
    case STUB_JOB.everything:
      everything(id);
      break;
    case STUB_JOB.late:
      late.add(id);
      live.set(id, 'hold');
      started(id);
      break;
    case STUB_JOB.hold:
      live.set(id, 'hold');
      started(id);
      break;
    case STUB_JOB.clocked:
      clocked(id, 0);
      break;
    case STUB_JOB.clockedSlow:
      clocked(id, 5);
      break;
    case STUB_JOB.flood:
      floods.add(id);
      live.set(id, 'hold');
      started(id);
      break;
    case STUB_JOB.queued:
      live.set(id, 'queued');
      break;
    case STUB_JOB.stuck:
      live.set(id, 'stuck');
      started(id);
      break;
    case STUB_JOB.block:
      started(id);
      // The link is written asynchronously: `started` is sent first.
      setTimeout(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0), 20);
      break;
    case STUB_JOB.nonsense:
      send({ v, kind: 'nonsense' });
      break;
    case STUB_JOB.breach:
      started(id);
      send({ v, kind: 'nonsense' });
      break;
    case STUB_JOB.begun:
      live.set(id, 'hold');
      started(id);
      emit(piece(id, 0, 'begun', 1));
      break;
    case STUB_JOB.steady:
      steadies.set(id, { made: 0, all: job.maxTokens });
      started(id);
      break;
    case STUB_JOB.grow:
      begin(id, job);
      break;
    case STUB_JOB.paced:
      paced(id, job);
      break;
    case STUB_JOB.look:
      look(id, job);
      break;
    case STUB_JOB.reused:
      echo(id, job, REUSED_TOKENS);
      break;
    case STUB_JOB.refuse:
      process.exit(ENGINE_EXIT.protocol);
      break;
    case STUB_JOB.stranger:
      emit({ id: id + 1000, kind: 'done' });
      break;
    case STUB_JOB.segv:
      process.kill(process.pid, 'SIGSEGV');
      break;
    case STUB_JOB.abort:
      process.stderr.write(`GGML_ASSERT(n > 0) failed: ${promptIds(job.prompt)[1]}\n`);
      process.abort();
      break;
    case STUB_JOB.fail:
      started(id);
      emit({ id, kind: 'failed', reason: 'no room' });
      break;
    case STUB_JOB.slow:
      slow(id, promptIds(job.prompt)[1] ?? 0);
      break;
    default:
      // A body of POST /responses cannot select what its job does.
      if (job.limit === undefined) echo(id, job);
      else begin(id, job);
  }
}

const link = Link.toParent({
  message: (raw) => {
    obey(raw as ToEngine);
    if (live.size > 0) ticking ??= setInterval(tick, 5);
    if (steadies.size > 0 && !beating) void beat();
  },
  closed: () => process.exit(0),
});

function obey(message: ToEngine): void {
  switch (message.kind) {
    case 'start':
      if (message.setup.weightsFollow) open(message.setup);
      else start(message.setup);
      break;
    case 'weights':
      if (opened) start(opened);
      opened = undefined;
      break;
    case 'generate':
      generate(message.id, message.job);
      break;
    case 'score':
      score(message.id, message.job);
      break;
    case 'embed':
      embed(message.id, message.job);
      break;
    case 'embeddings':
      seen(message.id);
      break;
    case 'limit':
      grow(message.id, message);
      break;
    case 'forget':
      if (message.scope !== undefined) forgets += 1;
      break;
    case 'reduceSeats':
      // Its jobs have one seat each.
      break;
    case 'cancel':
      live.delete(message.id);
      paces.delete(message.id);
      floods.delete(message.id);
      looks.delete(message.id);
      steadies.delete(message.id);
      growing.delete(message.id);
      break;
    case 'shutdown':
      if (script.deaf !== true) process.exit(0);
  }
}
