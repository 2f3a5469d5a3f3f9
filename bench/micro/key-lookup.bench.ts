/**
 * The time to check a credential, by the result: `node dist/bench/micro/key-lookup.bench.js`, part of `make bench`.
 * Valid and invalid ones take the same steps and should take the same time; this measures it.
 */
import { KeyFileIdentity } from '../../sidecar/access/key-identity.js';
import { createKey } from '../../sidecar/access/keys.js';
import type { Credentials } from '../../sidecar/access/identity.js';
import type { StoredKey } from '../../sidecar/access/key-file.js';
import { RequestLimits } from '../../sidecar/access/limits.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { keep } from '../support/results.js';

const KEYS = 10_000;
/** Calls timed together: one alone is shorter than the clock’s own noise. */
const BATCH = 200;
const BATCHES = 1000;

function entry(changes: Partial<StoredKey> = {}): { key: string; stored: StoredKey } {
  const { key, stored } = createKey('ra-key-');
  const entitlements = { development: { models: 'all' } } as const;
  return { key, stored: { ...stored, account: 'acme', created: '2026-01-01T00:00:00Z', entitlements, ...changes } };
}

function head(authorization: string): Credentials {
  return { address: '', header: () => authorization };
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? NaN;
}

const good = entry();
const revoked = entry({ revoked: '2026-01-02T00:00:00Z' });
const expired = entry({ expires: '2026-01-02T00:00:00Z' });
const keys = [...Array.from({ length: KEYS - 3 }, () => entry().stored), good.stored, revoked.stored, expired.stored];
const identity = new KeyFileIdentity({ version: 1, keys }, 'development');

const KINDS: readonly (readonly [name: string, credentials: Credentials])[] = [
  ['good', head(`Bearer ${good.key}`)],
  ['good but for its last character', head(`Bearer ${good.key.slice(0, -1)}_`)],
  ['unknown', head(`Bearer ${entry().key}`)],
  ['malformed', head(`Basic ${good.key}`)],
  ['revoked', head(`Bearer ${revoked.key}`)],
  ['expired', head(`Bearer ${expired.key}`)],
];

// In turn, so that other work of the machine affects all of them alike.
const times = KINDS.map((): number[] => []);
for (let batch = 0; batch < BATCHES; batch++) {
  for (const [i, [, credentials]] of KINDS.entries()) {
    const start = performance.now();
    for (let call = 0; call < BATCH; call++) void identity.resolve(credentials);
    times[i]?.push(((performance.now() - start) * 1000) / BATCH);
  }
}

const limits = new RequestLimits(systemClock, {
  decisions: { inFlight: 32, perMinute: 100_000 },
  chat: { inFlight: 0, perMinute: 0 },
  embeddings: { inFlight: 0, perMinute: 0 },
  models: { inFlight: 0, perMinute: 0 },
});
const limitTimes: number[] = [];
for (let batch = 0; batch < BATCHES; batch++) {
  const start = performance.now();
  for (let call = 0; call < BATCH; call++) {
    const taken = limits.take({ account: 'acme', keyId: String(batch % 100) }, 'decisions');
    if (taken.kind === 'taken') taken.permit.end(true);
  }
  limitTimes.push(((performance.now() - start) * 1000) / BATCH);
}

const medians = times.map(median);
await keep('key-lookup', {
  title: 'Checking a credential, by the result',
  about: [
    `Medians of ${BATCHES} batches of ${BATCH} calls each, the kinds in turn; a file of ${KEYS} keys.`,
    'Every credential is hashed once and looked up once (sidecar/access/key-identity.ts), which a test asserts.',
  ],
  rows: [
    ...KINDS.map(([credential], i) => ({ credential, 'median, µs': Number((medians[i] ?? NaN).toFixed(2)) })),
    { credential: 'limits: take and end', 'median, µs': Number(median(limitTimes).toFixed(2)) },
  ],
  conclusions: [
    `The slowest kind takes ${(Math.max(...medians) / Math.min(...medians)).toFixed(2)} times what the quickest does.`,
  ],
});
