/** Quotas of a sidecar with a real engine: no token past what is reserved, and day and month go on after a kill. */
import { join } from 'node:path';
import t from 'tap';
import { writeKeyFile } from '../../sidecar/access/key-file.js';
import { makeKey } from '../support/keys.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

const [DAY, MONTH] = [700, 5000];

t.test('a real reply ends at the last token that its quota has, and what it used counts after a restart', async (t) => {
  const dataDir = t.testdir();
  const { key, stored } = makeKey({ entitlements: { development: { models: 'all', tokensPerDay: DAY } } });
  const keys = { file: join(dataDir, 'own-keys.json') };
  const accounts = { [stored.account ?? '']: { tokensPerMonth: MONTH } };
  await writeKeyFile(keys.file, { version: 1, keys: [stored], accounts });
  const config = { ...(await chatOnly(2)), dataDir, keys, contract: 'compatible', environment: 'development' };
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' };
  const first = await Sidecar.start(t, { config });
  // A reward for repetition makes the model continue to the end of its context.
  const endless = { model: CHAT, max_tokens: 1500, temperature: 0, frequency_penalty: -2, n: 1 };
  const body = JSON.stringify({ ...endless, messages: [{ role: 'user', content: 'Hello' }] });
  const ask = (port: number): Promise<Response> =>
    fetch(`http://127.0.0.1:${port}/v1/chat/completions`, { method: 'POST', headers, body });
  const answer = await ask(first.port);
  const { choices, usage } = (await answer.json()) as {
    choices: { finish_reason: string }[];
    usage: { prompt_tokens: number; completion_tokens: number };
  };
  const used = usage.prompt_tokens + usage.completion_tokens;
  t.equal(choices[0]?.finish_reason, 'length');
  t.equal(used, DAY, 'two parts of 256 tokens fit, and some of a third');
  t.equal(answer.headers.get('x-ratelimit-remaining-tokens'), String(DAY - used));
  first.child.kill('SIGKILL');
  await first.exited();

  const second = await Sidecar.start(t, { stub: true, config });
  const account = await fetch(`http://127.0.0.1:${second.port}/v1/account`, { headers });
  const { limits } = (await account.json()) as { limits: readonly { name: string }[] };
  t.match(
    limits.filter(({ name }) => name.startsWith('tokens')),
    [
      { name: 'tokens_per_day', scope: 'key', remaining: DAY - used },
      { name: 'tokens_per_month', scope: 'account', remaining: MONTH - used },
    ],
  );
  t.equal((await ask(second.port)).status, 429);
  const day = new Date().toISOString().slice(0, 10);
  const query = `start_time=${Date.parse(day) / 1000 - 86_400}&limit=2&group_by=model`;
  const page = await fetch(`http://127.0.0.1:${second.port}/v1/usage?${query}`, { headers });
  t.equal(page.headers.get('cache-control'), 'no-store');
  const { data } = (await page.json()) as { data: readonly { results: readonly object[] }[] };
  const { prompt_tokens, completion_tokens } = usage;
  t.match(
    data.flatMap(({ results }) => results),
    [{ model: CHAT, num_model_requests: 1, input_tokens: prompt_tokens, output_tokens: completion_tokens }],
    'its usage is answered while its limits are used up',
  );
});
