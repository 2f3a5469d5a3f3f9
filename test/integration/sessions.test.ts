/**
 * Agents on a real engine with fewer seats than agents: a turn finds the state of its session's last one. And what a caller learns of
 * other accounts' prompts from the cached tokens of its own: nothing.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { makeKey } from '../support/keys.js';
import { testModel } from '../support/models.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const SEATS = 4;
const AGENTS = 12;
const TURNS = 6;
const ACCOUNTS = ['a', 'b', 'c'];

const folder = await mkdtemp(join(tmpdir(), 'ra-sessions-'));
t.teardown(() => rm(folder, { recursive: true, force: true }));
const keys = ACCOUNTS.map((account) => makeKey({ id: account, account }));
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
const model = {
  id: CHAT,
  kind: 'chat',
  file: await testModel(),
  seats: SEATS,
  contextPerSeat: 4096,
  prefixCache: { bytes: 0 },
};
const sidecar = await Sidecar.start(t, {
  config: { models: [model], keys: { file: keyFile } },
});

interface Answer {
  readonly text: string;
  readonly prompt: number;
  readonly cached: number;
}

/** Asks until it is answered: a refused request returns after Retry-After. */
async function ask(account: number, messages: readonly object[]): Promise<Answer> {
  const body = { model: CHAT, messages, max_tokens: 8, temperature: 0 };
  for (;;) {
    const response = await sidecar.post('/chat/completions', body, { key: keys[account]?.key ?? null });
    if (response.status === 429) {
      await response.text();
      await sleep(Number(response.headers.get('retry-after-ms')));
      continue;
    }
    const { choices, usage } = (await response.json()) as {
      choices: [{ message: { content: string } }];
      usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
    };
    const { prompt_tokens: prompt, prompt_tokens_details: details } = usage;
    return { text: choices[0].message.content, prompt, cached: details.cached_tokens };
  }
}

t.test('the usage does not show what another account sent', async (t) => {
  const messages = [{ role: 'user', content: 'Be brief and kind, and say what you know of the sea. '.repeat(30) }];
  t.equal((await ask(0, messages)).cached, 0);
  t.equal((await ask(1, messages)).cached, 0, 'nothing of another account');
  const own = (await ask(1, messages)).cached;
  t.ok(own > 256, `${own} of its own`);
});

t.test('requests of several replies and single ones leave a kept sequence to its session', async (t) => {
  const messages: object[] = [{ role: 'system', content: 'You are a careful agent of one task. '.repeat(80) }];
  const { text } = await ask(2, [...messages, { role: 'user', content: 'Begin.' }]);
  const single = { model: CHAT, messages: [{ role: 'user', content: 'Hello.' }], max_tokens: 1 };
  // The second time the sequence of the session is the free one that was used longest ago.
  for (let i = 0; i < 2; i += 1)
    await sidecar.post('/chat/completions', { ...single, n: SEATS }, { key: keys[0]?.key ?? null });
  const next = [
    { role: 'user', content: 'Begin.' },
    { role: 'assistant', content: text },
    { role: 'user', content: 'Go on.' },
  ];
  const { prompt, cached } = await ask(2, [...messages, ...next]);
  t.ok(cached > 0.8 * prompt, `${cached} of ${prompt} tokens`);
});

t.test('twelve agents on four seats, without a prefix cache: their turns reuse most of their prompts', async (t) => {
  const sums = { prompt: 0, cached: 0 };
  await Promise.all(
    Array.from({ length: AGENTS }, async (_, agent) => {
      const messages: object[] = [{ role: 'system', content: `You are agent ${agent * 7919}. `.repeat(80) }];
      for (let turn = 0; turn < TURNS; turn += 1) {
        messages.push({ role: 'user', content: `Result ${turn} of tool ${agent}: nothing to see. `.repeat(4) });
        const { text, prompt, cached } = await ask(agent % ACCOUNTS.length, messages);
        messages.push({ role: 'assistant', content: text });
        if (turn === 0) continue;
        sums.prompt += prompt;
        sums.cached += cached;
      }
    }),
  );
  // None of them is reused where no seat is kept; bench/results/sessions-http.md has what more turns reuse.
  t.ok(sums.cached >= 0.6 * sums.prompt, `${sums.cached} of ${sums.prompt} tokens`);
  t.ok((await sidecar.metric('ra_sidecar_session_turns', { model: CHAT, seat: 'kept' })) > 0.6 * AGENTS * (TURNS - 1));
});
