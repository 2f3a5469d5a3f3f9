import type { ChildProcess } from 'node:child_process';
import type { Link } from '../../engine/protocol/link.js';
import type { CacheScope } from '../../engine/protocol/cache-key.js';
import {
  NO_REPORT,
  PROTOCOL_VERSION,
  type EngineReport,
  type FromEngine,
  type ToEngine,
} from '../../engine/protocol/messages.js';
import type { EngineFacts } from '../../engine/protocol/setup.js';
import type { Output } from '../../engine/protocol/job-output.js';
import { childEnvironment } from '../config/config.js';
import { forkLinked } from '../../engine/protocol/linked-child.js';
import { NO_CORE_FILE } from '../../engine/protocol/no-core-dump.js';
import type { ChildEvents, ChildOptions } from './child-options.js';
import { exitDetail, exitReason, StderrTail, type ChildEnd, type ExitReason } from './exit-reason.js';
import { Mux } from './mux.js';
import { poolThreads } from './pool-threads.js';
import { HeldPrefixes, NO_PREFIXES, type ReplicaPrefixes } from './prefix-index.js';
import { Watchdog } from './watchdog.js';
import { readMessage } from './wire.js';
import { usableCores } from '../../engine/protocol/usable-cores.js';

/**
 * How long a child's last messages are awaited after its exit, ms: a process that it started may keep its pipes open.
 */
const LAST_MESSAGES_MS = 250;

/** How long close() waits for a killed child; only one stuck inside a driver takes longer. */
export const KILL_WAIT_MS = 2000;

/** The shell's command that becomes the engine. */
const ENGINE = `${NO_CORE_FILE}; exec "$0" "$@"`;

/** The longest reason of an `unable` that is forwarded, in characters. */
const MAX_REASON = 300;

/**
 * One engine process: fork, handshake, messages, watchdog, end. Never reused. The child exits when this process ends,
 * since its link closes.
 */
export class EngineChild {
  readonly mux: Mux;
  /** Settles when the process is gone. Never rejects. */
  readonly exited: Promise<void>;
  readonly #options: ChildOptions;
  readonly #events: ChildEvents;
  readonly #stderr = new StderrTail();
  #process: ChildProcess | undefined;
  #link: Link | undefined;
  #watchdog: Watchdog | undefined;
  #held: HeldPrefixes | undefined;
  #ready = false;
  #over = false;
  #report = NO_REPORT;
  /** Of its facts. */
  #seats = 0;
  #unconfirmed = 0;
  /** Why its external server cannot be used, as last reported. */
  #serverProblem: string | undefined;
  #markExited!: () => void;
  #cancelStart: () => void = () => undefined;

  /** Forks at once; nothing is reported before the next tick. */
  constructor(options: ChildOptions, events: ChildEvents) {
    this.#options = options;
    this.#events = events;
    this.mux = new Mux(
      (message) => this.#send(message),
      (error) => events.threw(error),
      (reason) => events.failed(oneLine(reason)),
    );
    this.exited = new Promise((resolve) => (this.#markExited = resolve));
    this.#fork();
  }

  /** The prefixes in its free sequences and its prefix cache; empty before `ready`. */
  get heldPrefixes(): ReplicaPrefixes {
    return this.#held ?? NO_PREFIXES;
  }

  /** As of its last heartbeat; of one that has ended, or is about to, as before the first one. */
  get report(): EngineReport {
    return this.#over ? NO_REPORT : this.#report;
  }

  /** Keeps nothing that requests of this scope left. */
  forget(scope: CacheScope): void {
    if (this.#ready) this.#send({ v: PROTOCOL_VERSION, kind: 'forget', scope });
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /**
   * Ends the child without a report: `shutdown`, then SIGKILL after `graceMs`, or at once while it loads. Settles when
   * it has ended, or 2 s after SIGKILL. Fail the mux's jobs first.
   */
  async close(graceMs: number): Promise<void> {
    const loading = !this.#ready;
    this.#finish();
    if (this.#process === undefined) return;
    if (loading) this.#process.kill('SIGKILL');
    else this.#send({ v: PROTOCOL_VERSION, kind: 'shutdown' });
    const { clock } = this.#options;
    const cancelKill = clock.after(graceMs, () => this.#process?.kill('SIGKILL'));
    const stuck = new Promise<void>((resolve) => {
      const cancelWait = clock.after(graceMs + KILL_WAIT_MS, resolve);
      void this.exited.then(cancelWait);
    });
    await Promise.race([this.exited, stuck]);
    cancelKill();
  }

  #fork(): void {
    const { entry, setup, timing, clock, environment: own } = this.#options;
    // Read when its pool starts.
    const pool = { UV_THREADPOOL_SIZE: String(poolThreads(usableCores().cores)) };
    const environment = childEnvironment({ ...pool, ...own });
    const link = { message: (raw: unknown) => this.#receive(raw), closed: () => undefined };
    // Without this process's own arguments: Node's options for the heap or the inspector are not meant for engines.
    const forked = forkLinked(
      '/bin/sh',
      ['-c', ENGINE, process.execPath, entry],
      { stderr: 'pipe', environment },
      link,
    );
    if (forked.kind === 'failed') {
      void forked.code.then((code) => this.#unstartable(code));
      return;
    }
    const { child } = forked;
    this.#process = child;
    this.#link = forked.link;
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => this.#stderr.add(chunk));
    child.on('exit', (code, signal) => this.#exited(child, code, signal));
    this.#cancelStart = clock.after(timing.startTimeoutMs, () => this.#kill('start-timeout', this.#serverProblem));
    this.#send({ v: PROTOCOL_VERSION, kind: 'start', setup });
  }

  /** A message to a child that has ended is dropped: its end is reported by `exit`, not by the link. */
  #send(message: ToEngine): void {
    this.#link?.send(message);
  }

  #receive(raw: unknown): void {
    if (this.#over) return;
    const message = readMessage(raw);
    if ('violation' in message) this.#kill('protocol', message.violation);
    else this.#handle(message);
  }

  #handle(message: FromEngine): void {
    switch (message.kind) {
      case 'ready':
        if (this.#ready) this.#kill('protocol', 'ready-twice');
        else this.#begin(message.facts);
        break;
      case 'unable':
        this.#kill('unable', oneLine(message.reason), message.mayMend);
        break;
      case 'serverProblem':
        this.#serverProblem = oneLine(message.reason);
        this.#events.serverProblem(this.#serverProblem);
        break;
      case 'capacity':
        if (this.#ready) this.#resize(message.seats, message.unconfirmed);
        else this.#kill('protocol', 'capacity-before-ready');
        break;
      case 'heartbeat':
        this.#report = message;
        this.#watchdog?.received(message.step, false);
        break;
      case 'step': {
        this.#watchdog?.received(message.step, message.outputs.length > 0);
        // The prefixes are applied first: a receiver that gets its job's end may ask for them.
        const violation = this.#held?.apply(message.held) ?? this.#apply(message.outputs);
        if (violation !== undefined) this.#kill('protocol', violation);
      }
    }
  }

  #apply(outputs: readonly Output[]): string | undefined {
    return this.#ready ? this.mux.apply(outputs) : 'step-before-ready';
  }

  #resize(seats: number, unconfirmed: number): void {
    const { capacity } = this.#events;
    if (unconfirmed > this.#unconfirmed) capacity.unconfirmed(unconfirmed - this.#unconfirmed);
    this.#unconfirmed = unconfirmed;
    capacity.seats(Math.min(seats, this.#seats));
  }

  #begin(facts: EngineFacts): void {
    const { clock, timing } = this.#options;
    this.#ready = true;
    this.#seats = facts.seats;
    this.mux.confirmsCancels = facts.confirmsCancels === true;
    this.mux.weightVersion = facts.weightVersion;
    this.#held = new HeldPrefixes(facts.seats, facts.contextPerSeat);
    this.#cancelStart();
    // A job whose image is still being encoded elsewhere has no steps.
    const pending = (): boolean => Math.max(this.mux.open, this.#report.live) > this.mux.awaitingImages;
    this.#watchdog = new Watchdog(clock, timing.hangMs, pending, (hang) => this.#kill('hang', hang));
    this.#events.ready(facts);
  }

  /** Its last messages may still arrive: `close` comes after them. */
  #exited(child: ChildProcess, code: number | null, signal: string | null): void {
    this.#markExited();
    const end = (): void => {
      cancel();
      this.#end({ reason: exitReason(signal), code, signal, ...exitDetail(code, this.#serverProblem) });
    };
    const cancel = this.#options.clock.after(LAST_MESSAGES_MS, end);
    child.once('close', end);
  }

  #unstartable(detail: string): void {
    this.#markExited();
    this.#end({ reason: 'unstartable', detail, code: null, signal: null });
  }

  #kill(reason: ExitReason, detail?: string, mayMend = false): void {
    this.#process?.kill('SIGKILL');
    this.#end({ reason, code: null, signal: null, mayMend, ...(detail === undefined ? {} : { detail }) });
  }

  #end(end: ChildEnd): void {
    if (this.#over) return;
    this.#finish();
    const { hint } = this.#stderr;
    this.#events.ended(hint === undefined ? end : { ...end, hint });
  }

  #finish(): void {
    this.#over = true;
    this.#cancelStart();
    this.#watchdog?.stop();
  }
}

function oneLine(text: string): string {
  return text.replace(/\p{Cc}+/gu, ' ').slice(0, MAX_REASON);
}
