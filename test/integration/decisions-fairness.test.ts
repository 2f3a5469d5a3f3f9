/** A decision of 128 questions delays no other request: only the order of events is tested, on a real engine. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { PATIENT_ENGINE, PATIENT_QUEUE } from '../support/config-parts.js';
import { makeKey } from '../support/keys.js';
import { testModel } from '../support/models.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';

const ACCOUNTS = ['many', 'one', 'talker'] as const;
type Account = (typeof ACCOUNTS)[number];

const MOST_QUESTIONS = 128;
/** Long enough that 128 of them take far longer than a few tokens of a chat. */
const WORDY = 'Would you say so of the parcel, the street, the house and the people in it?';

const folder = await mkdtemp(join(tmpdir(), 'ra-decisions-fairness-'));
t.teardown(() => rm(folder, { recursive: true, force: true }));
const keys = new Map(ACCOUNTS.map((account) => [account, makeKey({ id: account, account })]));
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: [...keys.values()].map(({ stored }) => stored) }));

t.test('128 questions of one account, one of another, and a chat', async (t) => {
  const file = await testModel();
  const sidecar = await Sidecar.start(t, {
    config: {
      models: [
        { id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 2048 },
        { id: DECIDE, kind: 'decision', file, seats: 2, contextPerSeat: 8192 },
      ],
      keys: { file: keyFile },
      queue: PATIENT_QUEUE,
      engine: PATIENT_ENGINE,
    },
  });
  const send = async (account: Account, path: string, body: object): Promise<string> => {
    const response = await sidecar.post(path, body, { key: keys.get(account)?.key ?? null });
    const text = await response.text();
    t.equal(response.status, 200, account);
    return text;
  };
  const decide = async (account: Account, count: number): Promise<number> => {
    const questions = Array.from({ length: count }, (_, i) => {
      return { id: String(i), type: 'yes_no', question: `${i}. ${WORDY}` };
    });
    const text = await send(account, '/decisions', { model: DECIDE, input: 'The parcel never came.', questions });
    return Object.keys((JSON.parse(text) as { readonly answers: object }).answers).length;
  };

  const seated = (account: Account, model = DECIDE): Promise<void> => {
    return sidecar.reaches('ra_sidecar_account_seats_busy', 1, { model, account });
  };
  // The others arrive while the engines are stopped, when none of the 128 is answered, however slow the machine is.
  const engines = [CHAT, DECIDE].map((model) => sidecar.enginePid(model));
  for (const engine of engines) process.kill(engine, 'SIGSTOP');
  const many = decide('many', MOST_QUESTIONS);
  await seated('many');
  const one = decide('one', 1);
  await seated('one');
  const messages = [{ role: 'user', content: 'Hello' }];
  const talk = send('talker', '/chat/completions', { model: CHAT, messages, stream: true, max_tokens: 4 });
  await seated('talker', CHAT);
  for (const engine of engines) process.kill(engine, 'SIGCONT');

  t.match(await talk, /data: \[DONE\]\n\n/);
  t.equal(await one, 1);
  t.equal(await many, MOST_QUESTIONS);
  await sidecar.logged('request', ACCOUNTS.length);
  const order = sidecar.lines.filter(({ event }) => event === 'request').map((line) => line['account']);
  t.equal(order.at(-1), 'many', `served in this order: ${order.join(', ')}`);
});
