/** Only short bodies are parsed on the event loop: `bodies.inlineBytes` bounds how long a hostile one can block it. */
import t from 'tap';
import { systemClock } from '../../../../sidecar/lib/clock.js';
import { PromptHostClient } from '../../../../sidecar/prompts/client.js';
import { received } from '../../../support/bodies.js';

const OWNER = { account: 'a', weight: 1 };

const INLINE_BYTES = 1000;
const NEVER = new AbortController().signal;

t.test('a body of one byte more waits for the host', async (t) => {
  const client = new PromptHostClient({
    name: 'long',
    models: [],
    workers: 1,
    silenceMs: 30_000,
    maxQueued: 10,
    inlineBytes: INLINE_BYTES,
    clock: systemClock,
  });
  const check = (bytes: number) => client.open('chat', received(Buffer.from('['.repeat(bytes))), OWNER).check(NEVER);
  const short = check(INLINE_BYTES);
  const long = check(INLINE_BYTES + 1);
  t.equal(client.stats().queued, 1, 'one is queued for the host');
  client.close();
  t.match(await short, { kind: 'refused' }, 'the short one was parsed at once');
  t.same(
    await long,
    { kind: 'failed', reason: 'closed' },
    'the long one was not: the host was closed before it was ready',
  );
});
