/** One request to a server, for one item of a job: a reply or a question's answer. */
import type { Output } from '../protocol/jobs.js';

export interface Flight {
  /** The server's name for it. */
  readonly name: string;
  /** The server is known to have taken it. */
  readonly begun: boolean;
  /** Closes its connection; no event follows. Idempotent. */
  close(): void;
}

/** Called in order. After one of the last five nothing is called. */
export interface FlightEvents {
  /** At most once. `cached`: absent, not known yet. */
  begun(cached: number | undefined): void;
  outputs(outputs: readonly Output[]): void;
  /** Known after `begun`. */
  cached(tokens: number): void;
  /** The server has computed more of it: of its prompt, or a token. Other bytes, such as comments, prove nothing. */
  moved(what: 'prompt' | 'token'): void;
  /** The item is complete, and the server has ended it too. */
  done(): void;
  /** The item is complete, and its connection is closed; the server may still compute it. */
  complete(): void;
  /** The server refuses further requests for now. */
  busy(): void;
  /** The connection ended too early: the server may have ended. */
  broken(): void;
  failed(why: string): void;
}
