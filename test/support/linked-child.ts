import { spawn, type ChildProcess } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { Link } from '../../engine/protocol/link.js';

/** A process that a test or a bench started, and this end of its link; `message`: its messages. */
export class LinkedChild extends EventEmitter<{ message: [raw: unknown] }> {
  readonly process: ChildProcess;
  readonly #link: Link;

  /** `entry`: path of its module. `environment`: variables besides this process's own. */
  constructor(
    entry: string,
    stderr: 'inherit' | 'ignore' = 'inherit',
    environment: Readonly<Record<string, string>> = {},
  ) {
    super();
    const env = { ...process.env, ...environment };
    this.process = spawn(process.execPath, [entry], { stdio: ['ignore', 'ignore', stderr, 'pipe'], env });
    this.#link = Link.toChild(this.process, {
      message: (raw) => this.emit('message', raw),
      closed: () => undefined,
    });
  }

  /** Sends any value, also invalid messages. */
  send(raw: unknown): void {
    this.#link.send(raw as object);
  }

  /** What the child sees of a parent that has ended. */
  leave(): void {
    this.#link.close();
  }
}
