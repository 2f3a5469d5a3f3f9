/**
 * The memory of a sidecar whose authorizer reports another account and another key with each request. What is kept of one is small and bounded:
 * the queue remembers 10,000 accounts, quotas and limits 65,536 keys each.
 */
import t from 'tap';
import type { Identity } from '../../sidecar/access/identity.js';
import { ACME, chatBody, FakeIdentity, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { fullCollector } from '../support/grown-old.js';

/** More than the queue remembers. */
const ACCOUNTS = 12_000;
const CONNECTIONS = 8;
/** Of each further account: the count of its key's quota, kept until midnight UTC, and of its key's last minute. */
const BYTES_PER_ACCOUNT = 600;

let minted = 0;
const minting: Identity = {
  resolve: () => {
    minted += 1;
    const limits = { chat: { perMinute: 60 } };
    const named = { account: `minted-${minted}`, keyId: `key-${minted}` };
    return Promise.resolve({ ...ACME, ...named, limits, tokensPerDay: 1_000_000 });
  },
};

const sidecar = await InProcess.start(t, {
  models: [{ id: 'chat', kind: 'chat', seats: CONNECTIONS }],
  identity: new FakeIdentity(minting),
  keeps: false,
});
const collect = fullCollector();

/** Sends one request of each of so many new accounts, and returns the bytes of the heap afterwards. */
async function serve(accounts: number): Promise<number> {
  const body = JSON.stringify(chatBody('chat', 'echo', { max_tokens: 2 }));
  const caller = async (): Promise<void> => {
    const connection = await sidecar.connect();
    for (let i = 0; i < accounts / CONNECTIONS; i += 1) {
      const headers = { ...JSON_HEADERS, Authorization: 'Bearer minted' };
      const { status } = await connection.request('POST', '/v1/chat/completions', headers, body).response();
      if (status !== 200) throw new Error(`answered ${status}`);
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, caller));
  collect();
  return process.memoryUsage().heapUsed;
}

t.setTimeout(600_000);
t.test('of a further account nothing is kept but the counts of its key', async (t) => {
  const before = await serve(ACCOUNTS);
  const grown = (await serve(ACCOUNTS)) - before;
  t.comment(`${Math.round(grown / ACCOUNTS)} bytes for each of ${ACCOUNTS} further accounts`);
  t.equal(minted, 2 * ACCOUNTS);
  t.ok(grown < BYTES_PER_ACCOUNT * ACCOUNTS, `${grown} bytes`);
});
