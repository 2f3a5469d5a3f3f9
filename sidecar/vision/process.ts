import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { forkLinked } from '../../engine/protocol/linked-child.js';
import { NO_CORE_FILE } from '../../engine/protocol/no-core-dump.js';
import type { Link } from '../../engine/protocol/link.js';
import {
  VISION_VERSION,
  type FromVision,
  type ToVision,
  type VisionSetup,
} from '../../engine/protocol/vision-messages.js';
import { childEnvironment, confinedEnvironment } from '../config/config.js';
import { deviceEnvironment } from '../config/devices.js';
import type { Clock } from '../lib/clock.js';
import { readVisionMessage } from './wire.js';

const ENTRY = fileURLToPath(new URL('../../engine/vision.js', import.meta.url));

/** Reading a projector of gigabytes from a slow disk; afterwards it counts as hung, ms. */
export const START_TIMEOUT_MS = 300_000;

/** A ready process that sends nothing for this long is killed: it sends every second, also while it encodes, ms. */
const SILENCE_MS = 30_000;

/** Encodes run beside the process's own thread, one at a time. */
const POOL_THREADS = '2';

/** CUDA loads all of its code before the process is confined, not at each first use. */
const ON_GPU = { CUDA_MODULE_LOADING: 'EAGER' } as const;

export type VisionEnd = 'died' | 'hang' | 'protocol' | 'start-timeout' | 'unstartable' | 'closed';

type Message = FromVision extends infer M ? (M extends { v: number } ? Omit<M, 'v'> : never) : never;
type VisionRequest = ToVision extends infer M ? (M extends { v: number } ? Omit<M, 'v'> : never) : never;

export interface VisionProcessEvents {
  message(message: Message): void;
  /** Once, as the last event. */
  gone(why: VisionEnd): void;
}

/** One vision process from fork to exit. */
export class VisionProcess {
  readonly #clock: Clock;
  readonly #events: VisionProcessEvents;
  readonly #child: ChildProcess | undefined;
  readonly #link: Link | undefined;
  #cancelWatch: () => void;
  #end: VisionEnd = 'died';
  #gone = false;
  /** It has answered `start`. */
  #answered = false;
  /** Exit and the link's end come in either order. */
  #partsLeft = 2;

  constructor(setup: VisionSetup, clock: Clock, events: VisionProcessEvents, entry = ENTRY) {
    this.#clock = clock;
    this.#events = events;
    this.#cancelWatch = clock.after(START_TIMEOUT_MS, () => this.kill('start-timeout'));
    const { cores, device } = setup;
    const [file, before] = cores === undefined ? [process.execPath, []] : ['taskset', ['-c', cores, process.execPath]];
    const onGpu = device === undefined ? {} : { ...ON_GPU, ...deviceEnvironment([device], childEnvironment()) };
    const environment = confinedEnvironment({ UV_THREADPOOL_SIZE: POOL_THREADS, ...onGpu });
    const forked = forkLinked(
      '/bin/sh',
      ['-c', `${NO_CORE_FILE}; unset PWD; exec "$0" "$@"`, file, ...before, entry],
      { stderr: 'pipe', environment },
      { message: (raw) => this.#received(raw), closed: () => this.#partEnded(1) },
    );
    if (forked.kind === 'failed') {
      void forked.code.then(() => {
        this.#end = 'unstartable';
        this.#partEnded(2);
      });
      return;
    }
    this.#child = forked.child;
    this.#link = forked.link;
    // Its lines may contain parts of callers' images.
    forked.child.stderr?.resume();
    forked.child.once('exit', () => this.#partEnded(1));
    this.send({ kind: 'start', setup });
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Never throws; a request to a process that ends is lost, and `gone` follows. */
  send(request: VisionRequest): void {
    this.#link?.send({ v: VISION_VERSION, ...request });
  }

  kill(why: VisionEnd): void {
    if (this.#end === 'died') this.#end = why;
    this.#child?.kill('SIGKILL');
  }

  #received(raw: unknown): void {
    if (this.#gone || this.#end !== 'died') return;
    const message = readVisionMessage(raw);
    if (!message || !this.#expects(message)) {
      this.kill('protocol');
      return;
    }
    this.#cancelWatch();
    this.#cancelWatch = this.#clock.after(SILENCE_MS, () => this.kill('hang'));
    if (message.kind !== 'heartbeat') this.#events.message(message);
  }

  /**
   * It answers `start` once, and then everything else. The reason of a later `unable` would be logged, and could be made of
   * callers' images.
   */
  #expects({ kind }: FromVision): boolean {
    if (kind === 'heartbeat') return true;
    const answered = this.#answered;
    this.#answered = true;
    return (kind === 'ready' || kind === 'unable') !== answered;
  }

  #partEnded(parts: number): void {
    this.#partsLeft -= parts;
    if (this.#partsLeft > 0 || this.#gone) return;
    this.#gone = true;
    this.#cancelWatch();
    this.#events.gone(this.#end);
  }
}
