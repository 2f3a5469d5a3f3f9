/**
 * The channel between two of our processes: one pipe with framed messages (frames.ts). Both sides import this file.
 *
 * Node's own channel with `serialization: 'advanced'` would work, but costs more: each message leaves objects that are
 * tied to native memory, and young collections of both processes take a dozen times as long as with this channel, and a
 * round trip a third longer (bench/results/link.md).
 */
import type { ChildProcess } from 'node:child_process';
import { Socket } from 'node:net';
import { FrameReader, pack } from './frames.js';

/** The child's end of the link; the parent passes it as the fourth of `stdio`, as `'pipe'`. */
const LINK_FD = 3;

/** Bytes that a child reads at once. */
const READ_BYTES = 64 * 1024;

export interface LinkEvents {
  /** An unchecked message of the other side; `undefined`, and nothing after it, if the data is no valid frame. */
  message(raw: unknown): void;
  /** Once: the other side is gone, or this one was closed. */
  closed(): void;
}

/**
 * One end of a link. Messages are buffered without a bound while the other side does not read: the protocol bounds
 * them.
 */
export class Link {
  readonly #socket: Socket;

  private constructor(socket: Socket, events: LinkEvents) {
    this.#socket = socket;
    // An error is followed by `close`.
    socket.on('error', () => undefined);
    socket.once('close', () => events.closed());
  }

  /** The end of a child that was started with this link. Throws if it was not. */
  static toParent(events: LinkEvents): Link {
    const reader = new FrameReader((raw) => events.message(raw), true);
    // One buffer for all reads, since the reader keeps no reference to it.
    const callback = (bytes: number, buffer: Uint8Array): boolean => {
      reader.push(buffer.subarray(0, bytes));
      return true;
    };
    const onread = { buffer: Buffer.allocUnsafeSlow(READ_BYTES), callback };
    // Undocumented for its constructor, but supported as in connect().
    const options: ConstructorParameters<typeof Socket>[0] & { onread: typeof onread } = {
      fd: LINK_FD,
      readable: true,
      writable: true,
      onread,
    };
    return new Link(new Socket(options), events);
  }

  /** The end of the parent of `child`, which was spawned with a pipe at {@link LINK_FD}. */
  static toChild(child: ChildProcess, events: LinkEvents): Link {
    const socket = child.stdio[LINK_FD];
    if (!(socket instanceof Socket)) throw new Error('the child was spawned without a link');
    const reader = new FrameReader((raw) => events.message(raw));
    socket.on('data', (chunk: Buffer) => reader.push(chunk));
    return new Link(socket, events);
  }

  /**
   * Never throws if the other side is gone: the message is lost, and `closed` is called. The message's arrays must not
   * be changed afterwards. `sent`: it has left this process, or is lost.
   */
  send(message: object, sent?: () => void): void {
    const [frame, ...large] = pack(message);
    const last = large.pop();
    if (last === undefined) {
      this.#socket.write(frame, sent);
      return;
    }
    this.#socket.cork();
    for (const part of [frame, ...large]) this.#socket.write(part);
    this.#socket.write(last, sent);
    this.#socket.uncork();
  }

  /** Drops unsent data at once. Idempotent. */
  close(): void {
    this.#socket.destroy();
  }
}
