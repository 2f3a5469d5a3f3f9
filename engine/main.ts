/**
 * The engine process: one model, controlled over the messages of protocol/messages.ts. Forked by the sidecar's
 * supervisor; it ends after `shutdown`, when its parent or its link is gone, or at a message that is not of its
 * protocol.
 */
import './protocol/leave-signals.js';
import { jobProblem, type StepLimits } from './scheduler/job.js';
import { LoadFailure } from './llama/load-failure.js';
import { Shell } from './protocol/shell.js';
import { overwriteGarbage } from './protocol/process-settings.js';
import { ENGINE_EXIT, NO_REPORT, PROTOCOL_VERSION, type FromEngine, type ToEngine } from './protocol/messages.js';
import type { HashedFile } from './protocol/file-key.js';
import { isPooling, type EngineFacts, type EngineSetup, type GpuBackend } from './protocol/setup.js';
import type { GenerateJob, ScoreJob } from './protocol/jobs.js';
import { availableMemory, roomForMemoryFiles } from './llama/memory/available.js';
import { usableOf } from './llama/memory/verdict.js';
import { loadPooling, type PoolingRuntime } from './llama/pooling.js';
import { LoadedWeights, loadRuntime, type Runtime } from './llama/runtime.js';
import { STEP_MS } from './scheduler/step-planner.js';
import type { Emit } from './scheduler/outbox.js';
import { PoolingLoop } from './scheduler/pooling-loop.js';
import { StepLoop } from './scheduler/step-loop.js';
import { warmUp } from './scheduler/warm-up.js';

const shell: Shell<ToEngine, FromEngine> = new Shell(PROTOCOL_VERSION, {
  start: ({ setup }) => void start(setup),
  messages: {
    weights: ({ weights }) => {
      if (takeWeights === undefined) shell.refuse();
      else takeWeights(weights);
      takeWeights = undefined;
    },
    generate: ({ id, job }) => loopFor(id, job)?.generate(id, job),
    score: ({ id, job }) => loopFor(id, job)?.score(id, job),
    embed: ({ id, job }) => {
      if (running?.kind === 'pooling') running.loop.embed(id, job);
      else shell.refuse();
    },
    embeddings: ({ id, image, values }) => steps()?.supply(id, image, values),
    cancel: ({ id }) => running?.loop.cancel(id),
    forget: ({ scope }) => (scope === undefined ? overwriteGarbage() : void steps()?.forget(scope)),
    limit: (message) => steps()?.limit(message.id, message),
    reduceSeats: ({ id }) => steps()?.reduceSeats(id),
    shutdown: () => void shutdown(),
  },
  // After the current step. Not at once: an exit would wait for the step without the watch over the parent.
  refuse: () => void Promise.resolve(running?.loop.close()).then(() => process.exit(ENGINE_EXIT.protocol)),
});

/** Tidies within the longest age of a state. */
const TIDIES_AN_AGE = 8;

/** The longest time between two tidies, ms. */
const TIDY_MS = 10_000;

/** What serves jobs, by the kind of the model. Undefined until it is loaded. */
type Serving =
  | { readonly kind: 'steps'; readonly loop: StepLoop; readonly runtime: Runtime }
  | { readonly kind: 'pooling'; readonly loop: PoolingLoop; readonly runtime: PoolingRuntime };

let running: Serving | undefined;
/** Set while the hash of the weights is to come in a message. */
let takeWeights: ((weights: HashedFile | undefined) => void) | undefined;

async function start(setup: EngineSetup): Promise<void> {
  // The event loop runs while a model loads, so heartbeats start at once.
  setInterval(() => {
    const { live, tokens, cache } = running?.loop.report ?? NO_REPORT;
    shell.send({ kind: 'heartbeat', step: running?.loop.steps ?? 0, live, tokens, cache });
  }, setup.heartbeatMs);
  try {
    const weights = weightsOf(setup);
    if (isPooling(setup.kind)) await startPooling(setup, weights);
    else await startSteps(setup, weights);
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown failure';
    const { mayMend = false, noStep = false } = error instanceof LoadFailure ? error : {};
    shell.send({ kind: 'unable', reason, mayMend, ...(noStep && { noStep }) }, () => process.exit(ENGINE_EXIT.unable));
  }
}

const tries = (backend: GpuBackend | false): void => shell.send({ kind: 'tries', backend });
const emit: Emit = (step, outputs, held) => shell.send({ kind: 'step', step, outputs, held });

/** A model that makes vectors or scores. */
async function startPooling(setup: EngineSetup, weights: LoadedWeights): Promise<void> {
  const loaded = await weights.beside(loadPooling(setup, tries));
  const { pooling, limits, log, scores } = loaded;
  const first = Math.min(limits.stepTokens, limits.contextPerSeat);
  // The first decode reads every weight and makes llama.cpp's graph, so that no caller waits for it.
  await pooling.decode(new Uint32Array(first), Uint32Array.of(first), []).catch(async (error: unknown) => {
    throw new LoadFailure(`llama.cpp cannot decode with it: ${await log.why(error)}`, true, true);
  });
  pooling.clear();
  log.close();
  const version = await weights.version();
  const loop = new PoolingLoop(pooling, limits, emit);
  running = { kind: 'pooling', loop, runtime: loaded };
  const { width } = pooling;
  const facts = Object.assign(commonFacts(setup, loaded, version), { width }, scores && { scores });
  shell.send({ kind: 'ready', facts });
}

/** A model that continues prompts. */
async function startSteps(setup: EngineSetup, weights: LoadedWeights): Promise<void> {
  const loaded = await weights.beside(loadRuntime(setup, tries));
  const { decoder, tokens, log } = loaded;
  const device = loaded.gpu === false ? 'cpu' : 'gpu';
  const { prefillTokensPerStep, checkpointBytes } = loaded;
  const available = (): number | undefined => {
    const free = availableMemory();
    const room = roomForMemoryFiles()?.free ?? 0;
    return free === undefined ? room : Math.min(usableOf(free), room);
  };
  const maxAgeMs = setup.prefixCache?.maxAgeMs ?? Infinity;
  const prefixCache = { bytes: loaded.prefixCacheBytes, maxAgeMs, available };
  const kept = { checkpointBytes, prefixCache, parked: loaded.parked, ownsPrompts: true };
  const { stepMs = STEP_MS, ...settings } = setup;
  const limitsOf = (weights: string): StepLimits => {
    const origin = { weights, kv: loaded.kv };
    const own = { prefillTokensPerStep, origin, ...(device === 'gpu' && { stepMs }), ...kept };
    return Object.assign({}, settings, own);
  };
  await warmUp(decoder, tokens, limitsOf(''), device).catch(async (error: unknown) => {
    // The file could be loaded, so the cause may be the machine.
    throw new LoadFailure(`llama.cpp cannot decode with it: ${await log.why(error)}`, true, true);
  });
  log.close();
  const version = await weights.version();
  const loop = new StepLoop(decoder, tokens, limitsOf(version), emit);
  running = { kind: 'steps', loop, runtime: loaded };
  shell.send({ kind: 'ready', facts: facts(setup, loaded, version) });
  setInterval(() => void loop.tidy(), Math.min(prefixCache.maxAgeMs / TIDIES_AN_AGE, TIDY_MS));
}

/** Made before the load begins. */
function weightsOf({ file, weights, weightsFollow }: EngineSetup): LoadedWeights {
  if (!weightsFollow) return new LoadedWeights(file, Promise.resolve(weights));
  const opened = new LoadedWeights(file, new Promise((resolve) => (takeWeights = resolve)));
  shell.send({ kind: 'opens', ...(opened.key !== undefined && { key: opened.key }) });
  return opened;
}

function facts(setup: EngineSetup, loaded: Runtime, weightVersion: string): EngineFacts {
  return Object.assign(commonFacts(setup, loaded, weightVersion), {
    prefixCacheBytes: loaded.prefixCacheBytes,
    warnings: loaded.warnings,
    states: [weightVersion, loaded.kv, loaded.shape].join(' '),
  });
}

function commonFacts(setup: EngineSetup, loaded: Runtime | PoolingRuntime, weightVersion: string): EngineFacts {
  return {
    seats: setup.seats,
    contextPerSeat: setup.contextPerSeat,
    vocabulary: loaded.vocabulary,
    weightVersion,
    promptVersion: loaded.promptVersion,
    threads: loaded.threads,
    gpu: loaded.gpu,
    repackedBytes: loaded.repackedBytes,
  };
}

async function shutdown(): Promise<void> {
  await running?.loop.close();
  await running?.runtime.dispose();
  process.exit(ENGINE_EXIT.done);
}

/** The loop of a model that continues prompts. */
function steps(): StepLoop | undefined {
  return running?.kind === 'steps' ? running.loop : undefined;
}

/** The loop for a job; a job that would crash llama.cpp fails alone. */
function loopFor(id: number, job: GenerateJob | ScoreJob): StepLoop | undefined {
  if (running?.kind !== 'steps') {
    shell.refuse();
    return undefined;
  }
  const { loop, runtime } = running;
  const problem = jobProblem(job, runtime.vocabulary);
  if (problem === undefined) return loop;
  emit(loop.steps, [{ id, kind: 'failed', reason: problem }], []);
  return undefined;
}
