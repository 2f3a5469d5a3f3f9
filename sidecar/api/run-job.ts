import type { Lease } from '../admission/seat-queue.js';
import type {
  Engine,
  JobFault,
  GenerateJob,
  GenerationReceiver,
  JobHandle,
  ScoreJob,
  ScoreReceiver,
} from '../engine-client/engine.js';
import type { ContractError } from '../domain/errors.js';
import { releaseReasonOf, releaseWhenStopped, type Interruption } from './interruption.js';
import type { JobPlan } from './job-plan.js';
import * as refusals from './refusals.js';
import type { UsageSession } from './usage-session.js';
import type { RequestContext, Stop } from './request-context.js';

/** The request was granted a seat, and is answered and recorded, whether its job ran or not. */
export interface Ended {
  readonly kind: 'ended';
}

export const ENDED: Ended = { kind: 'ended' };

/** How a job's run ended. */
export type RunEnd =
  | { readonly kind: 'done' }
  /** The caller disconnected. */
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'failed'; readonly outcome: 'failed' | 'timeout' | 'refused'; readonly error: ContractError }
  /** It ended without running: its prompt could not be made again, or it was given no second seat. */
  | { readonly kind: 'stopped'; readonly stop: Stop };

/** What a job's results are passed to; {@link runJob} itself gets the rest ({@link RunEvents}). */
type ResultReceiver<R> = Omit<R, keyof RunEvents>;

/** Receives the results of a chat. */
export type ReplyReceiver = ResultReceiver<GenerationReceiver>;

/** Receives the results of a decision. */
export type AnswerReceiver = ResultReceiver<ScoreReceiver>;

/** A job and who receives its results. The plan's job is removed once the engine has begun it, since no other replica gets it then. */
export type JobRun =
  | { readonly kind: 'generate'; readonly plan: JobPlan<GenerateJob>; readonly receiver: ReplyReceiver }
  | { readonly kind: 'score'; readonly plan: JobPlan<ScoreJob>; readonly receiver: AnswerReceiver };

/** What a job runs with. */
export interface JobParts {
  readonly engine: Pick<Engine, 'run'>;
  readonly usage: Pick<UsageSession, 'open'>;
  /** Seats that it can use at once. */
  readonly seatsWanted: number;
  /** The sidecar ends: its engine may be stopped. */
  readonly draining: () => boolean;
  /** Embeddings of its prompt's images. Absent: it has none. */
  readonly images?: JobImages;
  /** Makes the prompt again with the tokenizer and template of this replica. Absent: it fits every replica. */
  readonly remake?: (replica: number) => Promise<RemadeJob | Stop>;
}

/** A job whose prompt was made once more. */
export interface RemadeJob {
  readonly kind: 'remade';
  readonly plan: JobPlan<GenerateJob> | JobPlan<ScoreJob>;
  readonly images?: JobImages;
}

/**
 * How often a prompt is made again: while weights are replaced, a request may meet a replica of the other version, and that may change
 * before it has the new prompt.
 */
const MAX_REMAKES = 4;

/** Why there are no embeddings of an image. */
export interface ImageFailure {
  readonly kind: 'image-failed';
  readonly error: ContractError;
}

/** Gets the embeddings of images, by their index in the prompt, until `close`. */
export interface JobImages {
  embeddings(image: number): Promise<Float32Array | ImageFailure>;
  /** They are not needed any more. Idempotent. */
  close(): void;
}

/** The job must not start. */
interface NotStarted {
  readonly kind: 'not-started';
  readonly error: ContractError;
}

/**
 * Runs a job on its seats and ends the lease, whatever happens. The lease grows to the seats that the job uses and that are
 * free. A job that the engine lost before it started it goes back to the head of the queue, for another replica if there is one;
 * the queue bounds how often.
 */
export async function runJob(context: RequestContext, granted: Lease, first: JobRun, parts: JobParts): Promise<RunEnd> {
  let lease = granted;
  let current = first;
  let { images } = parts;
  let remakes = 0;
  /** The lease is released once the engine has stopped. */
  let releasesLater = false;
  try {
    for (;;) {
      context.times.handedOver();
      const end = await run(context, lease, current, { ...parts, ...(images && { images }) });
      if (end === 'done') {
        context.times.ran();
        lease.release('done');
        return { kind: 'done' };
      }
      if (end.kind === 'cancelled' || end.kind === 'deadline') {
        releasesLater = releaseWhenStopped(lease, end);
        if (end.kind === 'cancelled') return { kind: 'cancelled' };
        return { kind: 'failed', outcome: 'timeout', error: refusals.timedOut() };
      }
      if (end.kind === 'not-started' || end.kind === 'image-failed') {
        lease.release('failed');
        return { kind: 'failed', outcome: end.kind === 'image-failed' ? 'failed' : 'refused', error: end.error };
      }
      if (end.kind === 'stale' && parts.remake && remakes < MAX_REMAKES) {
        remakes += 1;
        const made = await parts.remake(lease.replica);
        if (made.kind !== 'remade') {
          lease.release(releaseReasonOf(made));
          return { kind: 'stopped', stop: made };
        }
        images?.close();
        ({ images } = made);
        current = Object.assign({}, current, { plan: made.plan });
        continue;
      }
      if (end.kind !== 'lost' || end.started) {
        lease.release(end.kind === 'lost' ? 'engine-lost' : 'failed');
        // The drain's time is over, so the sidecar itself has ended the engine.
        const error = parts.draining() ? refusals.shutDownError() : refusals.engineFault(end);
        return { kind: 'failed', outcome: 'failed', error };
      }
      context.times.ran();
      const again = await context.awaitSeat(lease.giveBack());
      if ('kind' in again) return { kind: 'stopped', stop: again };
      lease = again;
    }
  } finally {
    images?.close();
    // Does nothing unless a function above threw: each end has released the lease.
    if (!releasesLater) lease.release('failed');
  }
}

/** Takes up to `wanted` seats in all, as many as are free and no request waits for. Returns how many it has. */
function growTo(lease: Lease, wanted: number): number {
  while (lease.seats < wanted && lease.takeSeat());
  return lease.seats;
}

/** One attempt: until the job ends, its caller disconnects or its deadline passes, whichever comes first. */
function run(
  context: RequestContext,
  lease: Lease,
  jobRun: JobRun,
  parts: JobParts,
): Promise<'done' | Interruption | JobFault | NotStarted | ImageFailure> {
  const { gone } = context.exchange;
  return new Promise((resolve) => {
    if (gone.aborted) {
      resolve({ kind: 'cancelled' });
      return;
    }
    const clear = (): void => {
      gone.removeEventListener('abort', cancel);
      cancelTimer();
    };
    let ended = false;
    const end = (how: 'done' | Interruption | JobFault | NotStarted | ImageFailure): void => {
      ended = true;
      clear();
      resolve(how);
    };
    const stop = (kind: Interruption['kind']): void => {
      const engineStopped = job?.cancel();
      end({ kind, ...(engineStopped && { engineStopped }) });
    };
    const cancel = (): void => stop('cancelled');
    let job: JobHandle | undefined;
    // Before the start, which may end the job at once.
    const cancelTimer = context.atDeadline(() => stop('deadline'));
    gone.addEventListener('abort', cancel);
    try {
      const refusal = parts.usage.open();
      if (refusal) {
        end({ kind: 'not-started', error: refusal });
        return;
      }
      const { images } = parts;
      const supply = async (image: number): Promise<void> => {
        const made = await images?.embeddings(image);
        if (ended || !made) return;
        if (made instanceof Float32Array) {
          job?.supply?.(image, made);
          return;
        }
        void job?.cancel();
        end(made);
      };
      const events: RunEvents = {
        seatFreed: () => lease.freeSeat(),
        done: () => end('done'),
        failed: end,
        ...(images && { needsImage: (image) => void supply(image) }),
      };
      const started = start(parts.engine, jobRun, lease, growTo(lease, parts.seatsWanted), events);
      job = started;
      lease.whenWanted(() => started.reduceSeats());
    } catch (fault) {
      clear();
      throw fault;
    }
  });
}

/** What a run itself needs to know of its job. */
type RunEvents = Pick<GenerationReceiver, 'seatFreed' | 'done' | 'failed' | 'needsImage'>;

/** Sends the job to the replica whose seats it has. */
function start(
  engine: JobParts['engine'],
  jobRun: JobRun,
  { replica }: Lease,
  seats: number,
  events: RunEvents,
): JobHandle {
  const { prefix } = jobRun.plan.needs;
  /** A reply may take minutes, and the prompt's tokens and grammars are as long as the model's context and the caller's schemas. */
  const begun: Pick<ReplyReceiver, 'started'> = {
    started: (cachedTokens, weightVersion) => {
      jobRun.plan.job = undefined;
      jobRun.receiver.started(cachedTokens, weightVersion);
    },
  };
  if (jobRun.kind === 'generate') {
    const job = { seats, ...unbegun(jobRun.plan) };
    const receiver = { ...jobRun.receiver, ...events, ...begun };
    return engine.run({ kind: 'generate', job, receiver }, replica, prefix);
  }
  const job = { seats, ...unbegun(jobRun.plan) };
  const receiver = { ...jobRun.receiver, ...events, ...begun };
  return engine.run({ kind: 'score', job, receiver }, replica, prefix);
}

function unbegun<T>({ job }: JobPlan<T>): NonNullable<JobPlan<T>['job']> {
  if (job === undefined) throw new Error('a job that an engine had begun was sent again');
  return job;
}
