import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Link } from '../../engine/protocol/link.js';
import type { Clock } from '../lib/clock.js';
import { childEnvironment } from '../config/config.js';
import { forkLinked } from '../../engine/protocol/linked-child.js';
import { readNews, STACK_MB, versioned, type HostSetup, type News, type Order } from './messages.js';

/** Loading many large vocabularies on a busy machine takes seconds; a host that takes longer than this is stuck. */
const START_TIMEOUT_MS = 60_000;

/**
 * The host's own thread works too, and its stack is what the system allows when it starts, 8 MB as a rule: raised by the
 * shell that becomes the host, as far as this machine lets it.
 */
const WITH_STACK = `ulimit -S -s ${STACK_MB * 1024} 2>/dev/null || ulimit -S -s "$(ulimit -H -s)"; exec "$0" "$@"`;

/**
 * Why a host is gone: it ended by itself, was killed over a silent item, broke the protocol, never became ready, could not
 * be forked, or was closed.
 */
export type HostEnd = 'died' | 'silent' | 'protocol' | 'start' | 'unstartable' | 'closed';

export interface HostEvents {
  /** Any message of this protocol version; `ready` is always the first. */
  news(news: News): void;
  /**
   * Once, and the last event: the process has ended and all that it sent has been read. `code`: the operating system's, of a
   * host that could not be forked.
   */
  gone(why: HostEnd, code?: string): void;
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
  #gone = false;
  /** Exit and the link's end come in either order, and answers may still be read between them. */
  #left = 2;

  /** `name`: what a list of processes shows of it. */
  constructor(name: string, setup: HostSetup, clock: Clock, events: HostEvents) {
    this.#events = events;
    const host = fileURLToPath(new URL('./host.js', import.meta.url));
    const forked = forkLinked(
      '/bin/sh',
      ['-c', WITH_STACK, process.execPath, host, name],
      { stderr: 'inherit', environment: childEnvironment() },
      { message: (raw) => this.#hear(raw), closed: () => this.#leave(1) },
    );
    if (forked.kind === 'failed') {
      this.#cancelStart = () => undefined;
      void forked.code.then((code) => this.#unstartable(code));
      return;
    }
    this.#child = forked.child;
    this.#link = forked.link;
    this.#child.once('exit', () => this.#leave(1));
    this.#cancelStart = clock.after(START_TIMEOUT_MS, () => this.kill('start'));
    this.send({ kind: 'start', setup });
  }

  get ready(): boolean {
    return this.#ready && !this.#gone;
  }

  /** Never throws; what is sent to a host that is going is lost, and `gone` follows. */
  send(order: Order): void {
    this.#link?.send(versioned(order));
  }

  /** Ends the process at once, whatever its threads do; `gone` follows with this reason. */
  kill(why: HostEnd): void {
    if (this.#end === 'died') this.#end = why;
    this.#child?.kill('SIGKILL');
  }

  #hear(raw: unknown): void {
    const news = readNews(raw);
    if (news === undefined || (news.kind === 'ready') === this.#ready) {
      this.kill('protocol');
      return;
    }
    if (news.kind === 'ready') {
      this.#ready = true;
      this.#cancelStart();
    }
    this.#events.news(news);
  }

  #unstartable(code: string): void {
    this.#gone = true;
    if (this.#end === 'died') this.#events.gone('unstartable', code);
    else this.#events.gone(this.#end);
  }

  #leave(parts: number): void {
    this.#left -= parts;
    if (this.#left > 0 || this.#gone) return;
    this.#gone = true;
    this.#cancelStart();
    this.#events.gone(this.#ready || this.#end !== 'died' ? this.#end : 'start');
  }
}
