/** One vision process from its start to its exit, and the check of what it sends. */
import { fileURLToPath } from 'node:url';
import {
  VISION_VERSION,
  type Confinement,
  type FromVision,
  type LayoutPart,
  type ToVision,
  type VisionFacts,
  type VisionSetup,
} from '../../engine/protocol/vision-messages.js';
import { deviceEnvironment } from '../config/devices.js';
import { childEnvironment, ChildProcess, confinedEnvironment } from '../lib/child-process.js';
import type { Clock } from '../lib/clock.js';
import { among, fields, isBoolean, isCount, isFields, isPositive, listOf, oneOf } from '../lib/message-fields.js';
import { systemText } from '../lib/missing.js';

const ENTRY = fileURLToPath(new URL('../../engine/vision.js', import.meta.url));

/** Reading a projector of gigabytes from a slow disk; afterwards it counts as hung, ms. */
export const START_TIMEOUT_MS = 300_000;

/** A ready process that sends nothing for this long is killed: it sends every second, also while it encodes, ms. */
const SILENCE_MS = 30_000;

/** Encodes run beside the process's own thread, one at a time. */
const POOL_THREADS = '2';

/** CUDA loads all of its code before the process is confined, not at each first use. */
const ON_GPU = { CUDA_MODULE_LOADING: 'EAGER' } as const;

const KNOWN_ENDS = ['hang', 'protocol', 'start-timeout', 'unstartable'] as const;

/** `died`: it exited or was killed from outside. */
export type VisionEnd = (typeof KNOWN_ENDS)[number] | 'died';

type WithoutVersion<M> = M extends { v: number } ? Omit<M, 'v'> : never;
export type VisionMessage = WithoutVersion<FromVision>;
export type VisionRequest = WithoutVersion<ToVision>;

export interface VisionProcessEvents {
  message(message: VisionMessage): void;
  /** Once, as the last event, unless close() came first. One that was killed may not have exited yet. */
  ended(why: VisionEnd): void;
}

export class VisionProcess {
  readonly child: ChildProcess;
  readonly #events: VisionProcessEvents;
  /** It has answered `start`. */
  #answered = false;

  constructor(setup: VisionSetup, clock: Clock, events: VisionProcessEvents, entry = ENTRY) {
    this.#events = events;
    const { cores, device } = setup;
    const onGpu = device === undefined ? {} : { ...ON_GPU, ...deviceEnvironment([device], childEnvironment()) };
    this.child = new ChildProcess(
      {
        entry,
        environment: confinedEnvironment({ UV_THREADPOOL_SIZE: POOL_THREADS, ...onGpu }),
        clock,
        startTimeoutMs: START_TIMEOUT_MS,
        watch: { hangMs: SILENCE_MS, hasWork: () => false },
        ...(cores !== undefined && { cores }),
      },
      {
        message: (raw) => this.#received(raw),
        ended: ({ reason }) => events.ended(KNOWN_ENDS.find((known) => known === reason) ?? 'died'),
      },
    );
    this.send({ kind: 'start', setup });
  }

  /** Never throws; a request to a process that ends is lost, and `ended` follows. */
  send(request: VisionRequest): void {
    this.child.send({ v: VISION_VERSION, ...request });
  }

  #received(raw: unknown): void {
    const message = readVisionMessage(raw);
    if (!message || !this.#expects(message)) this.child.kill({ reason: 'protocol' });
    else if (message.kind !== 'heartbeat') this.#events.message(message);
  }

  /** It answers `start` once, then everything else. A later `unable` would be logged, and could be made of callers' images. */
  #expects({ kind }: FromVision): boolean {
    if (kind === 'heartbeat') return true;
    const answered = this.#answered;
    this.#answered = true;
    this.child.started();
    return (kind === 'ready' || kind === 'unable') !== answered;
  }
}

export type Probed =
  /** `bytes`: its memory; undefined if this system does not report it. */
  | { readonly kind: 'ready'; readonly facts: VisionFacts; readonly bytes: number | undefined }
  /** `reason`: one line for the operator. */
  | { readonly kind: 'unable'; readonly reason: string };

/** Starts a vision process, looks at what it is, and ends it. `entry`: of its module, absent: our own. Never rejects. */
export function probeVision(setup: VisionSetup, clock: Clock, entry?: string): Promise<Probed> {
  return new Promise((resolve) => {
    const end = async (probed: Probed): Promise<void> => {
      await child.close();
      resolve(probed);
    };
    const events: VisionProcessEvents = {
      message: (message) => {
        if (message.kind === 'ready') void end({ ...message, bytes: residentBytes(child.pid) });
        else if (message.kind === 'unable') void end(message);
      },
      ended: (why) => void end({ kind: 'unable', reason: `its process ended: ${why}` }),
    };
    const { child } = new VisionProcess(setup, clock, events, entry);
  });
}

function residentBytes(pid: number | undefined): number | undefined {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(systemText(`/proc/${pid}/status`))?.[1];
  return kib === undefined ? undefined : 1024 * Number(kib);
}

/** Parts of one image: a projector that cuts it into tiles makes a few for each of some dozens. */
export const MOST_PARTS = 4096;

/** Tokens of text that a projector puts around one image's embeddings: a few for each part. */
export const MOST_TEXT_TOKENS = 65_536;

/** Of one image's embeddings: each part is sent on to its engine in one frame, which has 512 MiB in all. */
export const MOST_EMBEDDING_BYTES = 511 * 2 ** 20;

/** Of a reason, UTF-16 units: it may contain a path. */
const MOST_REASON = 8192;

/** Hexadecimal digits of a SHA-256. */
const MOST_VERSION = 64;

/**
 * Checks one message of a vision process, which has parsed callers' files and may be under the control of one: its version, its
 * kind, every field. Returns the message itself, not a copy; undefined if it is none of the protocol. Whether its tokens are in the
 * vocabulary and its embeddings as wide as the model, the engine checks, which fails that job alone.
 */
export function readVisionMessage(raw: unknown): FromVision | undefined {
  return isFields(raw) && raw['v'] === VISION_VERSION && MESSAGE(raw) ? (raw as unknown as FromVision) : undefined;
}

const MESSAGE = oneOf<FromVision>({
  ready: {
    facts: fields<VisionFacts>({
      projectorVersion: textOf(MOST_VERSION),
      whole: isBoolean,
      confinement: fields<Confinement>({ filtered: isBoolean, bounded: isBoolean, ownUser: isBoolean }),
    }),
  },
  unable: { reason: textOf(MOST_REASON), mayMend: isBoolean },
  layout: { id: isCount, parts: isLayout },
  encoded: { id: isCount, embeddings: isEmbeddings },
  refused: { id: isCount, why: among('undecodable', 'failed') },
  heartbeat: {},
});

const isPart = oneOf<LayoutPart>({
  tokens: { tokens: (raw) => raw instanceof Uint32Array },
  embeddings: { count: isPositive, positions: isPositive, columns: isCount },
});

function isLayout(raw: unknown): boolean {
  if (!isShort(raw) || !listOf(isPart)(raw)) return false;
  const parts = raw as readonly LayoutPart[];
  const text = parts.reduce((sum, part) => sum + (part.kind === 'tokens' ? part.tokens.length : 0), 0);
  return text <= MOST_TEXT_TOKENS && parts.every((part) => part.kind === 'tokens' || isPlaces(part));
}

/** As the engine requires it of an image in a prompt (engine/scheduler/job.ts). */
function isPlaces({ count, positions, columns }: LayoutPart & { kind: 'embeddings' }): boolean {
  return positions <= count && columns <= count && (columns > 0 || positions === count);
}

function isEmbeddings(raw: unknown): boolean {
  if (!isShort(raw) || !listOf((each) => each instanceof Float32Array)(raw)) return false;
  return (raw as readonly Float32Array[]).reduce((sum, { byteLength }) => sum + byteLength, 0) <= MOST_EMBEDDING_BYTES;
}

/** Seen before the list is copied. */
function isShort(raw: unknown): boolean {
  return Array.isArray(raw) && raw.length <= MOST_PARTS;
}

function textOf(most: number): (raw: unknown) => boolean {
  return (raw) => typeof raw === 'string' && raw.length <= most;
}
