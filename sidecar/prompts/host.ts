/**
 * The prompt host: a child process, because the tokenizer can end its process
 * (docs/architecture.md#why-several-prompt-hosts). It has a pool of worker threads, or none: then its own thread does the
 * work, which saves short items a thread switch. It has no timers and makes no decisions; the sidecar's client watches
 * and kills it. It ends with its parent.
 *
 * The queue is the client's. A pool is sent no more items than it has threads, so that its own queue holds items only while a thread
 * that ended is replaced. A running item is not interrupted: piscina would end its thread to abort it, and the next thread would
 * load all vocabularies again while other items wait. The thread that compiles grammars starts with the first item that needs it.
 */
import '../../engine/protocol/leave-signals.js';
import { setEnvironmentData } from 'node:worker_threads';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Link } from '../../engine/protocol/link.js';
import { collectForRequests, endAtOnce, endWithParent } from '../../engine/protocol/process-settings.js';
import { describeFault } from '../telemetry/scrub.js';
import { PROMPTS_VERSION, STACK_MB, type FromHost, type HostSetup, type ModelReport, type ToHost } from './messages.js';
import type { Answer, CompilerTask, HostBody, Work, WorkerTask } from './messages.js';
import { failed } from './prompt-maker.js';
import type { ItemWork } from './item-work.js';

type Result = readonly ModelReport[] | Answer;

/** Runs one task. Rejects when its thread threw or died (out of memory). */
type Run<T, R> = (task: T) => Promise<R>;

interface Threads {
  readonly run: Run<WorkerTask, Result>;
  readonly compile: Run<CompilerTask, Answer>;
}

interface Item {
  readonly id: number;
  readonly work: Work;
  readonly bodyId: number;
  /** Absent: the sidecar and this process disagree about which bodies are kept. */
  readonly body: HostBody | undefined;
}

/** Bodies whose next item follows. The sidecar drops them. */
const bodies = new Map<number, HostBody>();
/** Items for this process's own thread that were sent ahead. The sidecar bounds their number. */
const waiting: Item[] = [];
/** This process's own thread runs an item, or the answer has not left this process. */
let isBusy = false;
/** Threads of the pool; 0: no pool. */
let workers = 0;
/** Set once all have loaded. */
let threads: Threads | undefined;

collectForRequests();

// A message that the sidecar does not send ends the process at once, since a thread may be stuck in native code.
const link = Link.toParent({ message: (raw) => handle(raw as ToHost | null | undefined), closed: endAtOnce });
// Without a listener, its message would be printed, and may quote a prompt.
process.on('uncaughtException', endAtOnce);

function handle(message: ToHost | null | undefined): void {
  switch (message?.kind) {
    case 'start':
      if (message.v === PROMPTS_VERSION) start(message.setup).catch(endAtOnce);
      else endAtOnce();
      return;
    case 'drop':
      bodies.delete(message.body);
      return;
    case 'cancel':
      cancel(message.item);
      return;
    case 'item':
      take({ id: message.item, work: message.work, bodyId: message.body, body: bodyOf(message) });
      return;
    default:
      endAtOnce();
  }
}

async function start(setup: HostSetup): Promise<void> {
  setEnvironmentData('setup', setup);
  workers = setup.workers;
  const run =
    workers === 0
      ? await ownThread(setup)
      : await pool<WorkerTask, Result>(setup.workerFile ?? pathOf('./worker.js'), workers, { stackSizeMb: STACK_MB });
  // A thread takes one task at a time, also before it has loaded, so as many tasks as threads wait until all have loaded.
  const reports = await Promise.all(Array.from({ length: Math.max(1, workers) }, () => run({ kind: 'report' })));
  threads = { run, compile };
  send({ kind: 'ready', models: reports[0] as readonly ModelReport[] });
}

async function ownThread(setup: HostSetup): Promise<Run<WorkerTask, Result>> {
  // While an item is worked on, this thread does not see its link close.
  endWithParent();
  const work = setup.workerFile === undefined ? await itemWork(setup) : await workerIn(setup.workerFile);
  return (task) => Promise.resolve().then(() => work(task));
}

/** Its module, with all that reads bodies and makes prompts, is loaded here alone: where there is a pool, its threads load it. */
async function itemWork(setup: HostSetup): Promise<ItemWork> {
  const { loadItemWork } = await import('./item-work.js');
  return await loadItemWork(setup);
}

async function workerIn(file: string): Promise<ItemWork> {
  return ((await import(pathToFileURL(file).href)) as { readonly default: ItemWork }).default;
}

let compiler: Promise<Run<CompilerTask, Answer>> | undefined;

/** In the compiler's thread, which this starts if there is none. */
async function compile(task: CompilerTask): Promise<Answer> {
  compiler ??= pool<CompilerTask, Answer>(pathOf('./compiler.js'), 1);
  try {
    return await (
      await compiler
    )(task);
  } catch (error) {
    // The next item may have a pool again where this one could not be made.
    compiler = undefined;
    throw error;
  }
}

function pathOf(module: string): string {
  return fileURLToPath(new URL(module, import.meta.url));
}

async function pool<T, R>(
  filename: string,
  size: number,
  resourceLimits: { stackSizeMb?: number } = {},
): Promise<Run<T, R>> {
  const { Piscina } = await import('piscina');
  const made = new Piscina<T, R>({
    filename,
    minThreads: size,
    maxThreads: size,
    idleTimeout: Infinity,
    maxQueue: size,
    resourceLimits,
    recordTiming: false,
  });
  // The pool replaces a thread that ends without a task; without a listener its error would end the process.
  made.on('error', () => undefined);
  return (task) => made.run(task);
}

/** The threads of pools take their items at once. */
function take(item: Item): void {
  if (workers > 0 || item.work.kind === 'compile') {
    run(item, () => undefined).catch(endAtOnce);
    return;
  }
  waiting.push(item);
  begin();
}

/** An item begins after the previous answer has left the process: if the item ends the process, no answer is lost, and it is known. */
function begin(): void {
  if (isBusy) return;
  const next = waiting.shift();
  if (next === undefined) return;
  isBusy = true;
  run(next, ended).catch(endAtOnce);
}

function ended(): void {
  isBusy = false;
  // What was sent meanwhile is read first: it may cancel the next item.
  if (waiting.length > 0) setImmediate(begin);
}

/** Answers one item. `sent`: called when its answer has left this process. */
async function run({ id, work, bodyId, body }: Item, sent: () => void): Promise<void> {
  const from = performance.now();
  const result = await resultOf(work, body);
  if (body && result.kind === 'needs-compiler') bodies.set(bodyId, body);
  send({ kind: 'answer', item: id, result, ms: performance.now() - from }, sent);
}

function cancel(id: number): void {
  const at = waiting.findIndex((each) => each.id === id);
  if (at < 0) return;
  waiting.splice(at, 1);
  send({ kind: 'answer', item: id, result: { kind: 'aborted' } });
}

/** The body that came with an item or before it. It is dropped with `tokenize`, which is the last unless the compiler is needed. */
function bodyOf({ work, body, sent }: ToHost & { kind: 'item' }): HostBody | undefined {
  const found = sent
    ? { form: sent.form, bytes: workers === 0 ? sent.bytes : inSharedMemory(sent.bytes) }
    : bodies.get(body);
  if (work.kind === 'tokenize') bodies.delete(body);
  else if (found) bodies.set(body, found);
  return found;
}

async function resultOf(work: Work, body: HostBody | undefined): Promise<Answer> {
  if (threads === undefined || body === undefined) return failed('body missing');
  try {
    if (work.kind === 'compile') return await threads.compile({ ...body, ...(work.syntax && { syntax: work.syntax }) });
    const { kind, ...more } = work;
    return (await threads.run({ kind, ...more, ...body })) as Answer;
  } catch (error) {
    // The worker threw or ended (out of memory) and is replaced by the pool; this item has failed.
    return failed('thrown', describeFault(error));
  }
}

function inSharedMemory(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(bytes.byteLength));
  copy.set(bytes);
  return copy;
}

function send(message: FromHost, sent?: () => void): void {
  link.send(message, sent);
}
