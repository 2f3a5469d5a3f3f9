/**
 * Zero retention, seen from outside: requests with a canary in every place, through success and every failure that HTTP can
 * reach, at the log's most talkative level. Nothing of them or of the replies may be on stdout, on stderr, in metrics, in
 * readiness, in a file, or in an error's answer.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { writeKeyFile } from '../../sidecar/access/key-file.js';
import * as canaries from '../support/canaries.js';
import { canary, chatBody, decisionBody, MARK, systemOneBody } from '../support/canaries.js';
import { makeKey } from '../support/keys.js';
import { childrenOf } from '../support/processes.js';
import { RawConnection } from '../support/raw-http.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const CHATS = '/chat/completions';

/** Not `development`, in which a key is printed for the developer. */
const ENVIRONMENT = 'staging';

const all = { entitlements: { [ENVIRONMENT]: { models: 'all' } } } as const;
const KEYS = {
  good: makeKey(all),
  expired: makeKey({ ...all, expires: '2026-02-01T00:00:00Z' }),
  revoked: makeKey({ ...all, revoked: '2026-02-01T00:00:00Z' }),
  elsewhere: makeKey(),
  frozen: makeKey({ ...all, account: 'ice' }),
};

/** What callers were told: errors must not echo, replies may. */
const errors: string[] = [];
const replies: string[] = [];

/** Every text that came out somewhere, by where. */
const seen = new Map<string, string[]>();

/** An error's whole answer, to be looked through at the end. */
async function refused(response: Response): Promise<{ status: number; code: string }> {
  const text = await response.text();
  errors.push(JSON.stringify([...response.headers]), text);
  return { status: response.status, code: (JSON.parse(text) as { error: { code: string } }).error.code };
}

/** The texts of a reply, whole or streamed. */
function completionOf(body: string): string {
  const texts = [...body.matchAll(/"content":("(?:[^"\\]|\\.)*")/g)].map(
    ([, json]) => JSON.parse(json ?? '') as string,
  );
  return texts.join('');
}

async function filesUnder(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Promise.all(files.map(async (file) => `${file}\n${await readFile(file, 'latin1')}`));
}

t.test('no content leaves by another way than the reply', async (t) => {
  const dataDir = t.testdir();
  const stored = Object.values(KEYS).map((key) => key.stored);
  await writeKeyFile(join(dataDir, 'keys.json'), { version: 1, accounts: { ice: { frozen: true } }, keys: stored });
  const sidecar = await Sidecar.start(t, {
    seats: 2,
    config: {
      dataDir,
      environment: ENVIRONMENT,
      log: { level: 'trace' },
      queue: { waitingPerSeat: 1 },
      prompts: { silenceMs: 1000 },
      engine: { hangMs: 3_600_000 },
    },
  });
  sidecar.key = KEYS.good.key;
  const look = async (): Promise<void> => {
    for (const [name, port, path] of [
      ['metrics', sidecar.operatorsPort, '/metrics'],
      ['readiness', sidecar.port, '/readyz'],
    ] as const) {
      const response = await fetch(`http://127.0.0.1:${port}${path}`);
      seen.set(name, [...(seen.get(name) ?? []), await response.text()]);
    }
  };
  const chat = (more: canaries.Fields = {}, options = {}): Promise<Response> =>
    sidecar.post(CHATS, chatBody(more), options);
  const signalEngine = (signal: NodeJS.Signals): void => void process.kill(sidecar.enginePid(CHAT), signal);

  t.test('200', async (t) => {
    const served = [
      await chat(),
      await chat({ stream: true, stream_options: { include_usage: true }, n: 2 }),
      await chat({ ...canaries.toolFields(), stream: true }),
      await chat({ ...canaries.toolFields(), messages: canaries.toolMessages(), tool_choice: 'auto' }),
      await chat({ response_format: { type: 'json_object' } }),
      await chat({ tools: canaries.toolFields()['tools'], tool_choice: 'none', user: 'x'.repeat(20) }),
      await sidecar.post('/decisions', decisionBody()),
      await sidecar.post('/systemone', systemOneBody()),
    ];
    for (const response of served) {
      t.equal(response.status, 200);
      replies.push(await response.text());
    }
    t.ok(completionOf(replies.join('\n')).split(' ').length > 20, 'there are words to look for');
    t.match(replies[6], MARK, 'a decision is answered by the ids that it was asked with');
  });

  t.test('what a request alone brings about: 400, 401, 403, 404, 405, 413, 415, 422', async (t) => {
    for (const { status, path, body, headers } of [...canaries.wrongBodies(), ...canaries.otherRefusals()]) {
      const response = await sidecar.post(path, body, { ...(headers && { headers }) });
      const { status: got, code } = await refused(response);
      t.equal(got, status, `${path} ${code}`);
    }
    for (const [name, status] of [
      ['expired', 401],
      ['revoked', 401],
      ['elsewhere', 403],
      ['frozen', 403],
    ] as const) {
      t.equal((await refused(await chat({}, { key: KEYS[name].key }))).status, status, name);
    }
    t.equal((await refused(await chat({}, { key: null }))).status, 401, 'no key');

    const raw = await RawConnection.open(sidecar.port);
    t.teardown(() => raw.close());
    raw.send(`GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: ${canary()}\r\nAuthorization: ${canary()}\r\n\r\n`);
    const twice = await raw.response();
    t.equal(twice.status, 400, 'two keys');
    errors.push(twice.raw);
  });

  t.test('429 and 499: a full queue, and callers who leave it', async (t) => {
    signalEngine('SIGSTOP');
    const leaving = new AbortController();
    const waiting = ['seats_busy', 'waiting_requests'].flatMap((metric) =>
      [1, 2].map((count) => ({ metric: `ra_sidecar_${metric}`, count })),
    );
    const left = [];
    for (const { metric, count } of waiting) {
      left.push(chat({}, { signal: leaving.signal }));
      await sidecar.reaches(metric, count);
    }
    t.same(await refused(await chat()), { status: 429, code: 'capacity_exceeded' });
    await look();
    leaving.abort();
    for (const { status } of await Promise.allSettled(left)) t.equal(status, 'rejected');
    await sidecar.logged('request', 4, (line) => line['status'] === 499);
    signalEngine('SIGCONT');
  });

  t.test('500: the prompt host stands still and is killed', async (t) => {
    const host = childrenOf(sidecar.pid).find(({ command }) => command.includes('prompts/host.js'));
    process.kill(Number(host?.pid), 'SIGSTOP');
    t.same(await refused(await chat()), { status: 500, code: 'internal' });
    replies.push(await (await chat()).text());
  });

  t.test('502 and 503: the engine is killed, and its model loads again', async (t) => {
    // Rewarded for repeating itself the model goes on as long as it may.
    const long = { max_tokens: 1500, temperature: 0, frequency_penalty: -2 };
    const stream = await chat({ ...long, stream: true });
    const whole = chat(long);
    await sidecar.reaches('ra_sidecar_seats_busy', 2);
    signalEngine('SIGKILL');
    const frames = await stream.text();
    replies.push(frames.slice(0, frames.indexOf('data: {"error"')));
    errors.push(frames.slice(frames.indexOf('data: {"error"')));
    t.match(errors.at(-1), /"code":"bad_gateway"/);
    t.same(await refused(await whole), { status: 502, code: 'bad_gateway' });
    t.same(await refused(await chat()), { status: 503, code: 'cold' });
    await look();
    await sidecar.logged('engine ready', 2, (line) => line['model'] === CHAT);
  });

  t.test('503: the sidecar drains', async (t) => {
    signalEngine('SIGSTOP');
    const last = chat();
    await sidecar.reaches('ra_sidecar_seats_busy', 1);
    sidecar.child.kill('SIGTERM');
    await sidecar.logged('draining');
    t.same(await refused(await chat()), { status: 503, code: 'draining' });
    await look();
    signalEngine('SIGCONT');
    replies.push(await (await last).text());
    t.same(await sidecar.exited(), { code: 0, signal: null });
  });

  t.test('nothing of it is found anywhere', async (t) => {
    const logged = new Set(sidecar.lines.filter(({ event }) => event === 'request').map((line) => line['status']));
    // 404 and 405 are refused before there is a visit to log.
    t.same([...logged].sort(), [200, 400, 401, 403, 413, 415, 422, 429, 499, 500, 502, 503]);

    seen.set(
      'stdout',
      sidecar.lines.map((line) => JSON.stringify(line)),
    );
    seen.set('stderr', [sidecar.printed]);
    seen.set('errors', errors);
    seen.set('files', await filesUnder(dataDir));
    const words = replies.flatMap((reply) => completionOf(reply).match(/[A-Za-z]+ [A-Za-z]+ [A-Za-z]+/g) ?? []);
    t.ok(words.length > 20, `${words.length} pieces of replies to look for`);
    const secrets = [MARK, ...Object.values(KEYS).map(({ key }) => key), ...words];
    for (const [place, texts] of seen) {
      t.ok(
        texts.some((text) => text.length > 0),
        `${place}: there is something to search`,
      );
      t.same(
        texts.filter((text) => secrets.some((secret) => text.includes(secret))),
        [],
        place,
      );
    }
  });
});
