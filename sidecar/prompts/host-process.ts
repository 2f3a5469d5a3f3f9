import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Link } from '../../engine/protocol/link.js';
import type { Clock } from '../lib/clock.js';
import { confinedEnvironment, nodeOptions } from '../lib/child-process.js';
import { forkLinked } from '../../engine/protocol/linked-child.js';
import { NO_CORE_FILE } from '../../engine/protocol/no-core-dump.js';
import { PROMPTS_VERSION, STACK_MB, type HostSetup, type FromHost, type ToHost } from './messages.js';

/** Loading many large vocabularies on a busy machine takes seconds; after this time a host is considered hung, ms. */
const START_TIMEOUT_MS = 60_000;

/**
 * The host's own thread tokenizes too, and its stack is set when it starts, usually 8 MB; the shell that becomes the
 * host raises it as far as this machine allows.
 */
const WITH_STACK = `${NO_CORE_FILE}; unset PWD; ulimit -S -s ${STACK_MB * 1024} 2>/dev/null || ulimit -S -s "$(ulimit -H -s)"; exec "$0" "$@"`;

/** node-llama-cpp does not load without a home folder. This one does not exist, so nothing in it can change what the host does. */
const NO_HOME = '/nonexistent';

/**
 * V8's helper threads optimize code while it runs, at a higher priority than the compiler thread's. Node starts four, which
 * together delay the first schema that takes long to compile by more than the work itself takes. Here there are as many as threads
 * that callers wait for.
 */
function helperThreads({ workers }: HostSetup): string {
  return `--v8-pool-size=${Math.max(1, workers)}`;
}

/**
 * Why a host ended: by itself, killed because of a hung item, after a protocol violation, never ready, could not be
 * forked, or closed.
 */
export type HostEnd = 'died' | 'silent' | 'protocol' | 'start' | 'unstartable' | 'closed';

export interface HostEvents {
  /** Any message of this protocol version; `ready` is always the first. */
  message(message: FromHost): void;
  /**
   * Once, as the last event: the process has ended and all its messages have been read. `code`: the operating system's,
   * of a host that could not be forked.
   */
  exited(why: HostEnd, code?: string): void;
}

/** One prompt host from fork to exit. */
export class HostProcess {
  /** Absent: it could not be forked. */
  readonly #child: ChildProcess | undefined;
  readonly #link: Link | undefined;
  readonly #events: HostEvents;
  readonly #cancelStart: () => void;
  #end: HostEnd = 'died';
  #ready = false;
  #exited = false;
  /** Exit and the link's end come in either order, and answers may still be read in between. */
  #openEnds = 2;

  /** `name`: shown in process lists. */
  constructor(name: string, setup: HostSetup, clock: Clock, events: HostEvents) {
    this.#events = events;
    const host = fileURLToPath(new URL('./host.js', import.meta.url));
    const forked = forkLinked(
      '/bin/sh',
      ['-c', WITH_STACK, process.execPath, helperThreads(setup), host, name],
      { stderr: 'pipe', environment: confinedEnvironment({ HOME: NO_HOME, ...nodeOptions() }) },
      { message: (raw) => this.#received(raw as FromHost | null | undefined), closed: () => this.#oneEnded() },
    );
    if (forked.kind === 'failed') {
      this.#cancelStart = () => undefined;
      void forked.code.then((code) => this.#unstartable(code));
      return;
    }
    this.#child = forked.child;
    this.#link = forked.link;
    // Its lines may quote prompts.
    this.#child.stderr?.resume();
    this.#child.once('exit', () => this.#oneEnded());
    this.#cancelStart = clock.after(START_TIMEOUT_MS, () => this.kill('start'));
    this.send({ kind: 'start', v: PROMPTS_VERSION, setup });
  }

  get ready(): boolean {
    return this.#ready && !this.#exited;
  }

  /** Never throws; messages to a host that is ending are lost, and `exited` follows. */
  send(message: ToHost): void {
    this.#link?.send(message);
  }

  /** Kills the process at once, whatever its threads do; `exited` follows with this reason. */
  kill(why: HostEnd): void {
    if (this.#end === 'died') this.#end = why;
    this.#child?.kill('SIGKILL');
  }

  #received(message: FromHost | null | undefined): void {
    if (!message || (message.kind === 'ready') === this.#ready) {
      this.kill('protocol');
      return;
    }
    if (message.kind === 'ready') {
      this.#ready = true;
      this.#cancelStart();
    }
    this.#events.message(message);
  }

  #unstartable(code: string): void {
    this.#exited = true;
    if (this.#end === 'died') this.#events.exited('unstartable', code);
    else this.#events.exited(this.#end);
  }

  #oneEnded(): void {
    this.#openEnds -= 1;
    if (this.#openEnds > 0 || this.#exited) return;
    this.#exited = true;
    this.#cancelStart();
    this.#events.exited(this.#ready || this.#end !== 'died' ? this.#end : 'start');
  }
}
