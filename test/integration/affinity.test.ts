/** What a caller learns of other accounts' prompts from the cached tokens of its own: nothing. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { makeKey } from '../support/keys.js';
import { embeddedTestModel } from '../support/models.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

/** Some 400 tokens that both prompts begin with. */
const SHARED = 'Be brief and kind, and say what you know of the sea. '.repeat(30);

t.test('the usage does not show what another account sent', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'ra-affinity-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const keys = ['occupant', 'sharer'].map((account) => makeKey({ id: account, account }));
  const file = join(folder, 'keys.json');
  await writeFile(file, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
  const model = { id: CHAT, kind: 'chat', file: await embeddedTestModel(), seats: 1, contextPerSeat: 2048 };
  const sidecar = await Sidecar.start(t, { config: { models: [model], keys: { file } } });
  const cached = async (account: 0 | 1): Promise<number> => {
    const body = { model: CHAT, messages: [{ role: 'user', content: SHARED }], max_tokens: 4, temperature: 0 };
    const response = await sidecar.post('/chat/completions', body, { key: keys[account]?.key ?? null });
    t.equal(response.status, 200);
    const { usage } = (await response.json()) as { usage: { prompt_tokens_details: { cached_tokens: number } } };
    return usage.prompt_tokens_details.cached_tokens;
  };
  t.equal(await cached(0), 0);
  t.equal(await cached(1), 0, 'nothing of another account');
  const own = await cached(1);
  t.ok(own > 256, `${own} of its own`);
});
