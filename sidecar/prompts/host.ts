/**
 * The prompt host: a child process, because the tokenizer can end its process (docs/architecture.md#why-two-prompt-hosts), with a pool of
 * worker threads, or with none: then its own thread does the work, which spares short items the way to another and back. It
 * has no timers and decides nothing; the sidecar's client watches it and kills it. It goes with its parent.
 */
import { setEnvironmentData } from 'node:worker_threads';
import { pathToFileURL } from 'node:url';
import { Piscina } from 'piscina';
import { Link } from '../../engine/protocol/link.js';
import { endAtOnce, endWithParent } from '../../engine/protocol/parent-watch.js';
import '../../engine/protocol/v8-flags.js';
import type { Route } from '../contracts/requests.js';
import { readOrder, STACK_MB, versioned, type HostSetup, type ModelReport, type News } from './messages.js';
import type { Order, Step, WorkerTask } from './messages.js';
import type { Checked, Tokenized } from './prompt-host.js';

interface Body {
  readonly route: Route;
  /** With a pool over shared memory, so that every worker reads the one copy. */
  readonly bytes: Uint8Array;
}

type Result = readonly ModelReport[] | Checked | Tokenized;

/** Works one task off. Rejects when the worker threw or died (out of memory). */
type Work = (task: WorkerTask) => Promise<Result>;

interface Item {
  readonly item: number;
  readonly step: Step;
  readonly body: Body | undefined;
}

const bodies = new Map<number, Body>();
/** Sent ahead: as many as the sidecar sends at most. */
const waiting: Item[] = [];
/** Items under way, their answers included until they have left this process. */
let running = 0;
/** Threads of the pool; 0: there is none. */
let workers = 0;
let work: Work | undefined;

const link = Link.toParent({
  message: (raw) => {
    const order = readOrder(raw);
    if (order === undefined) quit();
    else obey(order);
  },
  closed: quit,
});
// Unheard, its message would be printed, and that can quote a prompt.
process.on('uncaughtException', quit);
// Ctrl-C and service managers signal the whole group; the sidecar drains first and then closes the link.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => undefined);

function obey(order: Order): void {
  switch (order.kind) {
    case 'start':
      start(order.setup).catch(quit);
      return;
    case 'drop':
      bodies.delete(order.body);
      return;
    case 'cancel':
      cancel(order.item);
      return;
    case 'item':
      waiting.push({ item: order.item, step: order.step, body: bodyOf(order) });
      begin();
      return;
    default:
      quit();
  }
}

async function start(setup: HostSetup): Promise<void> {
  setEnvironmentData('setup', setup);
  workers = setup.workers;
  const made = workers === 0 ? await ownThread(setup) : pool(setup);
  // A worker holds one task at a time and gets it before it has loaded, so as many tasks as workers wait for all of them.
  const reports = await Promise.all(Array.from({ length: Math.max(1, workers) }, () => made({ kind: 'report' })));
  work = made;
  send({ kind: 'ready', models: reports[0] as readonly ModelReport[] });
}

async function ownThread({ workerFile }: HostSetup): Promise<Work> {
  // While an item is worked on, this thread does not see its link close.
  endWithParent();
  const module = (await import(pathToFileURL(workerFile).href)) as { readonly default: (task: WorkerTask) => Result };
  return (task) => Promise.resolve().then(() => module.default(task));
}

function pool({ workerFile, workers: threads }: HostSetup): Work {
  const made = new Piscina<WorkerTask, Result>({
    filename: workerFile,
    minThreads: threads,
    maxThreads: threads,
    idleTimeout: Infinity,
    resourceLimits: { stackSizeMb: STACK_MB },
    recordTiming: false,
  });
  // A worker that dies without a task is replaced by the pool; unheard, its error would end the process.
  made.on('error', () => undefined);
  return (task) => made.run(task);
}

/**
 * An item begins when the answer before it is out of this process, not only out of its worker: should the item bring the
 * process down, no answer goes with it, and the sidecar knows which items ran.
 */
function begin(): void {
  for (let next = waiting[0]; next !== undefined && running < Math.max(1, workers); next = waiting[0]) {
    waiting.shift();
    running += 1;
    answer(next).catch(quit);
  }
}

async function answer({ item, step, body }: Item): Promise<void> {
  const from = performance.now();
  const result = await run(step, body);
  send({ kind: 'answer', item, result, ms: performance.now() - from }, () => {
    running -= 1;
    // What was sent meanwhile is read first: it may cancel the next item.
    if (waiting.length > 0) setImmediate(begin);
  });
}

/** An item that has begun goes on to its end. */
function cancel(item: number): void {
  const at = waiting.findIndex((each) => each.item === item);
  if (at < 0) return;
  waiting.splice(at, 1);
  send({ kind: 'answer', item, result: { kind: 'aborted' } });
}

/** The body that came with an item or before it. After `tokenize`, its last step, nothing needs it here. */
function bodyOf({ step, body, sent }: Order & { kind: 'item' }): Body | undefined {
  const found = sent ? { route: sent.route, bytes: workers === 0 ? sent.bytes : shared(sent.bytes) } : bodies.get(body);
  if (step === 'tokenize') bodies.delete(body);
  else if (found) bodies.set(body, found);
  return found;
}

async function run(step: Step, body: Body | undefined): Promise<Checked | Tokenized> {
  if (work === undefined || body === undefined) return { kind: 'failed' };
  try {
    return (await work({ kind: step, ...body })) as Checked | Tokenized;
  } catch {
    // The worker threw or died (out of memory) and is replaced by the pool; this item has failed.
    return { kind: 'failed' };
  }
}

function shared(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(bytes.byteLength));
  copy.set(bytes);
  return copy;
}

function send(news: News, sent?: () => void): void {
  link.send(versioned(news), sent);
}

/** At once: a worker may be stuck in native code. */
function quit(): void {
  endAtOnce();
}
