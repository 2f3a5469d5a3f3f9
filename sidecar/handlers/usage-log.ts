import { randomUUID } from 'node:crypto';
import type { Caller } from '../access/identity.js';
import type { Outcome, UsageRecord } from '../ledger.js';
import type { Spool } from '../usage/spool.js';
import type { Visit } from './visit.js';

/** One request's lines in the usage spool: opened before it runs, closed once with what it came to. */
export class UsageLog {
  readonly #spool: Spool;
  readonly #date: () => Date;
  readonly #visit: Visit;
  readonly #fixed: Pick<UsageRecord, 'id' | 'requestId' | 'account' | 'keyId' | 'model' | 'route'>;
  #closed = false;

  constructor(spool: Spool, date: () => Date, visit: Visit, caller: Caller, model: string, route: string) {
    this.#spool = spool;
    this.#date = date;
    this.#visit = visit;
    const { account, keyId } = caller;
    this.#fixed = { id: randomUUID(), requestId: visit.exchange.head.requestId, account, keyId, model, route };
    this.#spool.append(this.#record('open'));
  }

  /** Appends the closing line and resolves once it is durable. Only the first call counts. */
  async close(outcome: Outcome): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const record = this.#record('close', outcome);
    this.#spool.append(record);
    await this.#spool.sync(record);
  }

  #record(kind: UsageRecord['kind'], outcome?: Outcome): UsageRecord {
    const { promptTokens, cachedTokens, completionTokens } = this.#visit;
    return {
      ...this.#fixed,
      kind,
      at: this.#date().toISOString(),
      promptTokens,
      cachedTokens,
      completionTokens,
      ...(outcome && { outcome }),
    };
  }
}
