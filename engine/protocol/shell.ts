/**
 * What each child process with a link does besides its work: it ends with its parent, keeps its memory out of dumps, starts once, and
 * takes no message of another version.
 */
import { Link } from './link.js';
import { ENGINE_EXIT } from './messages.js';
import { collectForRequests, endAtOnce, endWithParent, leaveMemoryOutOfDumps } from './process-settings.js';

interface Message {
  readonly v: number;
  readonly kind: string;
}

/** A message without its version. */
type Body<Sent extends Message> = Sent extends Message ? Omit<Sent, 'v'> : never;

export interface ShellWork<In extends Message> {
  start(message: Extract<In, { readonly kind: 'start' }>): void;
  /** What is done with each later one, by its kind. It is not checked but for its version. */
  readonly messages: {
    readonly [Kind in Exclude<In['kind'], 'start'>]: (message: Extract<In, { readonly kind: Kind }>) => void;
  };
  /** A message came that is not of the protocol; no other is read after it. Absent: the process ends at once. */
  refuse?(): void;
}

/** One for a process, made before anything that takes long. */
export class Shell<In extends Message, Out extends Message> {
  readonly #version: number;
  readonly #work: ShellWork<In>;
  readonly #link: Link;
  readonly #handlers: ReadonlyMap<string, (message: never) => void>;
  #started = false;
  #refused = false;

  constructor(version: number, work: ShellWork<In>) {
    this.#version = version;
    this.#work = work;
    this.#handlers = new Map(Object.entries<(message: never) => void>(work.messages));
    endWithParent();
    collectForRequests();
    leaveMemoryOutOfDumps();
    // An abort inside llama.cpp would start a debugger on this process to print a stack trace.
    process.env['GGML_NO_BACKTRACE'] = '1';
    this.#link = Link.toParent({
      message: (raw) => this.#receive(raw as In | null | undefined),
      // The sidecar is gone. A normal exit would wait for the current step, and a decode may hang.
      closed: endAtOnce,
    });
  }

  /** `sent`: it has left this process, or is lost. */
  send(body: Body<Out>, sent?: () => void): void {
    this.#link.send({ v: this.#version, ...body }, sent);
  }

  /** The last message, which is not of the protocol. */
  refuse(): void {
    this.#refused = true;
    if (this.#work.refuse) this.#work.refuse();
    else process.exit(ENGINE_EXIT.protocol);
  }

  #receive(message: In | null | undefined): void {
    if (this.#refused) return;
    if (message?.v !== this.#version || (message.kind === 'start') === this.#started) this.refuse();
    else if (this.#started) {
      const handle = this.#handlers.get(message.kind);
      if (handle) handle(message as never);
      else this.refuse();
    } else {
      this.#started = true;
      this.#work.start(message as Extract<In, { readonly kind: 'start' }>);
    }
  }
}
