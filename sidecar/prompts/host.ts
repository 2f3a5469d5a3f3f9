/**
 * The prompt host: a child process, because the tokenizer can end its process
 * (docs/architecture.md#why-two-prompt-hosts). It has a pool of worker threads, or none: then its own thread does the
 * work, which saves short items a thread switch. It has no timers and makes no decisions; the sidecar's client watches
 * and kills it. It ends with its parent.
 */
import { setEnvironmentData } from 'node:worker_threads';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Piscina } from 'piscina';
import { Link } from '../../engine/protocol/link.js';
import { endAtOnce, endWithParent } from '../../engine/protocol/parent-watch.js';
import '../../engine/protocol/group-signals.js';
import '../../engine/protocol/v8-flags.js';
import type { BodyForm } from '../contracts/requests.js';
import { describeFault } from '../telemetry/scrub.js';
import { WARM_UP } from './warm-up.js';
import { readToHost, STACK_MB, versioned, type HostSetup, type ModelReport, type FromHost } from './messages.js';
import type { Answer, CompilerTask, ToHost, Work, WorkerTask } from './messages.js';
import { failed } from './prompt-maker.js';

interface Body {
  readonly form: BodyForm;
  /** In shared memory if there is a pool, so that every worker reads the same copy. */
  readonly bytes: Uint8Array;
}

type Result = readonly ModelReport[] | Answer;

/** Runs one task. Rejects when the worker threw or died (out of memory). */
type RunTask = (task: WorkerTask) => Promise<Result>;

interface Item {
  readonly item: number;
  readonly work: Work;
  readonly bodyId: number;
  readonly body: Body | undefined;
}

const bodies = new Map<number, Body>();
/** Items that were sent ahead; the sidecar bounds their number. */
const waiting: Item[] = [];
/** Running items, until their answers have left this process. */
let running = 0;
/** Threads of the pool; 0: no pool. */
let workers = 0;
let runTask: RunTask | undefined;
let compiler: Piscina<CompilerTask, Answer> | undefined;

const link = Link.toParent({
  message: (raw) => {
    const message = readToHost(raw);
    if (message === undefined) quit();
    else handle(message);
  },
  closed: quit,
});
// Without a listener, its message would be printed, and may quote a prompt.
process.on('uncaughtException', quit);

function handle(message: ToHost): void {
  switch (message.kind) {
    case 'start':
      start(message.setup).catch(quit);
      return;
    case 'drop':
      bodies.delete(message.body);
      return;
    case 'cancel':
      cancel(message.item);
      return;
    case 'item':
      take({ item: message.item, work: message.work, bodyId: message.body, body: bodyOf(message) });
      return;
    default:
      quit();
  }
}

async function start(setup: HostSetup): Promise<void> {
  setEnvironmentData('setup', setup);
  workers = setup.workers;
  const made = workers === 0 ? await ownThread(setup) : pool(setup);
  compiler = new Piscina<CompilerTask, Answer>({
    filename: fileURLToPath(new URL('./compiler.js', import.meta.url)),
    minThreads: 1,
    maxThreads: 1,
    idleTimeout: Infinity,
    recordTiming: false,
  });
  compiler.on('error', () => undefined);
  // A worker takes one task at a time, also before it has loaded, so as many tasks as workers wait until all are loaded.
  const [reports] = await Promise.all([
    Promise.all(Array.from({ length: Math.max(1, workers) }, () => made({ kind: 'report' }))),
    loaded(compiler),
  ]);
  runTask = made;
  send({ kind: 'ready', models: reports[0] as readonly ModelReport[] });
}

/** Settles when the compiler thread has loaded and run, so that the first request that needs it does not wait for that. */
async function loaded(thread: Piscina<CompilerTask, Answer>): Promise<void> {
  try {
    await thread.run(WARM_UP);
  } catch {
    // The pool replaces the thread, and a request that needs it is answered by the next one.
  }
}

async function ownThread({ workerFile }: HostSetup): Promise<RunTask> {
  // While an item is worked on, this thread does not see its link close.
  endWithParent();
  const module = (await import(pathToFileURL(workerFile).href)) as { readonly default: (task: WorkerTask) => Result };
  return (task) => Promise.resolve().then(() => module.default(task));
}

function pool({ workerFile, workers: threads }: HostSetup): RunTask {
  const made = new Piscina<WorkerTask, Result>({
    filename: workerFile,
    minThreads: threads,
    maxThreads: threads,
    idleTimeout: Infinity,
    resourceLimits: { stackSizeMb: STACK_MB },
    recordTiming: false,
  });
  // The pool replaces a worker that ends without a task; without a listener its error would end the process.
  made.on('error', () => undefined);
  return (task) => made.run(task);
}

function take(item: Item): void {
  if (item.work.kind === 'compile') {
    // Beside the others: the sidecar sends one at a time.
    run(item, () => undefined).catch(quit);
    return;
  }
  waiting.push(item);
  begin();
}

/**
 * An item starts when the previous answer has left this process, not only its worker: if the item ends the process, no
 * answer is lost, and the sidecar knows which items ran.
 */
function begin(): void {
  for (let next = waiting[0]; next !== undefined && running < Math.max(1, workers); next = waiting[0]) {
    waiting.shift();
    running += 1;
    run(next, ended).catch(quit);
  }
}

function ended(): void {
  running -= 1;
  // What was sent meanwhile is read first: it may cancel the next item.
  if (waiting.length > 0) setImmediate(begin);
}

/** Answers one item. `sent`: called when its answer has left this process. */
async function run({ item, work, bodyId, body }: Item, sent: () => void): Promise<void> {
  const from = performance.now();
  const result = await resultOf(work, body);
  if (body && result.kind === 'needs-compiler') bodies.set(bodyId, body);
  send({ kind: 'answer', item, result, ms: performance.now() - from }, sent);
}

/** A running item is not interrupted. */
function cancel(item: number): void {
  const at = waiting.findIndex((each) => each.item === item);
  if (at < 0) return;
  waiting.splice(at, 1);
  send({ kind: 'answer', item, result: { kind: 'aborted' } });
}

/** The body that came with an item or before it. It is dropped with `tokenize`, which is the last unless the compiler is needed. */
function bodyOf({ work, body, sent }: ToHost & { kind: 'item' }): Body | undefined {
  const found = sent ? { form: sent.form, bytes: workers === 0 ? sent.bytes : shared(sent.bytes) } : bodies.get(body);
  if (work.kind === 'tokenize') bodies.delete(body);
  else if (found) bodies.set(body, found);
  return found;
}

async function resultOf(work: Work, body: Body | undefined): Promise<Answer> {
  if (runTask === undefined || compiler === undefined || body === undefined) return failed('body missing');
  try {
    if (work.kind === 'compile') return await compiler.run({ ...body, ...(work.syntax && { syntax: work.syntax }) });
    const { kind, ...more } = work;
    return (await runTask({ kind, ...more, ...body })) as Answer;
  } catch (error) {
    // The worker threw or ended (out of memory) and is replaced by the pool; this item has failed.
    return failed('thrown', describeFault(error));
  }
}

function shared(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(bytes.byteLength));
  copy.set(bytes);
  return copy;
}

function send(message: FromHost, sent?: () => void): void {
  link.send(versioned(message), sent);
}

/** At once: a worker may be stuck in native code. */
function quit(): void {
  endAtOnce();
}
