/**
 * Zero retention of what is stored and sent: the usage spool through a kill under load, damage and recovery, the events
 * that its sink accepts and refuses, balances, keys that change, and the commands that show all of these.
 */
import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { hashKey, writeKeyFile } from '../../sidecar/access/key-file.js';
import { canary, chatBody, decisionBody, MARK, toolFields } from '../support/canaries.js';
import { runCli } from '../support/cli.js';
import { runHere } from '../support/command-here.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { makeKey } from '../support/keys.js';
import { LeakSearch } from '../support/leak-search.js';
import { embeddedTestModel } from '../support/models.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';
import { UsageSink } from '../support/usage-sink.js';

const CHATS = '/chat/completions';
const ENVIRONMENT = 'staging';
const may = { models: 'all' } as const;
/** More than one chat of this file reserves, and less than two. */
const SPARING_TOKENS = 160;
const KEYS = {
  good: makeKey({ entitlements: { [ENVIRONMENT]: may } }),
  later: makeKey({ entitlements: { [ENVIRONMENT]: may } }),
  poor: makeKey({ account: 'poor', entitlements: { [ENVIRONMENT]: may } }),
  once: makeKey({ limits: { chat: { perMinute: 1 } }, entitlements: { [ENVIRONMENT]: may } }),
  tiny: makeKey({ entitlements: { [ENVIRONMENT]: { ...may, tokensPerDay: 1 } } }),
  sparing: makeKey({ entitlements: { [ENVIRONMENT]: { ...may, tokensPerDay: SPARING_TOKENS } } }),
};
const SINK_SECRET = 'sink-Zilpzalp-7Hq2wVn4Kx9Lm3Rt6Yb8Cd1Fg5Js0';
const rates = { input: '0.15', cachedInput: '0.15', output: '0.6' };
// A reward for repetition makes the model continue to the end of its context.
const ENDLESS = { max_tokens: 15_000, temperature: 0, frequency_penalty: -2, stream: true };

t.test('usage is recorded, sent and recovered without content', async (t) => {
  const dir = t.testdir();
  const path = (...names: string[]): string => join(dir, ...names);
  const dataDir = path('data');
  const prices = [{ version: 'v', effective: '2026-01-01T00:00:00Z', decisions: '0.042', chat: { [CHAT]: rates } }];
  await writeFile(path('prices.json'), JSON.stringify({ version: 1, prices }));
  const credit = { version: 1, accounts: { acme: [{ id: 'g', usd: '1000' }] } };
  await writeFile(path('credit.json'), JSON.stringify(credit));
  await writeFile(path('sink-secret'), SINK_SECRET);
  const { later, ...first } = KEYS;
  const storedFirst = Object.values(first).map(({ stored }) => stored);
  await writeKeyFile(path('keys.json'), { version: 1, keys: storedFirst });

  const watch = new RetentionWatch();
  const sink = await UsageSink.start(t);
  sink.answer = ({ response }) => void response.writeHead(422).end(`{"${SINK_SECRET}":"${canary()}"}`);
  const file = await embeddedTestModel();
  const start = async (): Promise<Sidecar> => {
    const sidecar = await Sidecar.start(t, {
      config: {
        dataDir,
        environment: ENVIRONMENT,
        models: [
          { id: CHAT, kind: 'chat', file, seats: 2, contextPerSeat: 16_384 },
          { id: DECIDE, kind: 'decision', file, seats: 2, contextPerSeat: 8192 },
        ],
        keys: { file: path('keys.json') },
        pricing: { file: path('prices.json') },
        credit: { file: path('credit.json'), pollMs: 100, onLostBalances: 'begin' },
        delivery: { url: sink.url, secretFile: path('sink-secret'), maxAgeMs: 0, backoffMinMs: 10, backoffMaxMs: 10 },
        log: { level: 'trace' },
        queue: PATIENT_QUEUE,
      },
    });
    sidecar.key = KEYS.good.key;
    return sidecar;
  };
  const sidecar = await start();
  const chat = (more = {}, key = KEYS.good.key): Promise<Response> =>
    sidecar.post(CHATS, chatBody(more), { key, headers: { 'idempotency-key': canary() } });

  await t.test('what is used, and refused events become dead letters', async (t) => {
    await watch.replied(await chat());
    await watch.replied(await chat({ ...toolFields(), stream: true }));
    await watch.replied(await sidecar.post('/decisions', decisionBody()));
    await sidecar.logged('usage event refused', 3);
    t.match(await readFile(path('data/usage/dead-letters.jsonl'), 'utf8'), '"status":422');
    sink.answer = ({ response }) => void response.writeHead(503).end(SINK_SECRET);
    await watch.replied(await chat());
    await sidecar.logged('usage delivery waits');
    sink.answer = ({ response }) => void response.writeHead(204).end();
    await sidecar.logged('usage delivery resumed');
  });

  await t.test('402 and 429: credit, limits and quotas', async (t) => {
    t.same(await watch.refused(await chat({}, KEYS.poor.key)), { status: 402, code: 'insufficient_credit' });
    await watch.replied(await chat({}, KEYS.once.key));
    t.same(await watch.refused(await chat({}, KEYS.once.key)), { status: 429, code: 'user_rate_limited' });
    t.same(await watch.refused(await chat({}, KEYS.tiny.key)), { status: 400, code: 'bad_request' });
    await watch.replied(await chat({}, KEYS.sparing.key));
    t.same(await watch.refused(await chat({}, KEYS.sparing.key)), { status: 429, code: 'quota_exceeded' });
  });

  await t.test('keys and grants change, and their files become invalid', async (t) => {
    const put = async (name: string, text: string, event: string): Promise<void> => {
      const count = sidecar.lines.filter((line) => line.event === event).length;
      await writeFile(path('next'), text);
      await rename(path('next'), path(name));
      sidecar.child.kill('SIGHUP');
      await sidecar.logged(event, count + 1);
    };
    const broken = `{"version":1,"keys":[{"${canary()}":"${KEYS.good.key}"}]}`;
    await put('keys.json', broken, 'keys file refused, the last valid keys stay in force');
    await put('keys.json', KEYS.good.key, 'keys file refused, the last valid keys stay in force');
    const all = JSON.stringify({ version: 1, keys: [...storedFirst, later.stored] });
    await put('keys.json', all, 'keys loaded');
    t.match(await watch.replied(await chat({}, later.key)), '"choices"');
    await put('credit.json', `{"${canary()}":`, 'credit file is invalid, the previous grants stay in force');
    await put('credit.json', JSON.stringify(credit), 'credit file read again');
  });

  await t.test('it is killed under load', async (t) => {
    const streams = [await chat(ENDLESS), await chat(ENDLESS)];
    // Stopped, neither ends before the sidecar is killed.
    const engine = sidecar.enginePid(CHAT);
    process.kill(engine, 'SIGSTOP');
    const waiting = chat().then(
      () => 'answered',
      () => 'cut off',
    );
    await counted(sidecar, 'waiting_requests', 1);
    watch.processes(sidecar.pid);
    await watch.pages(sidecar);
    sidecar.child.kill('SIGKILL');
    process.kill(engine, 'SIGCONT');
    t.equal((await sidecar.exited()).signal, 'SIGKILL');
    t.equal(await waiting, 'cut off');
    for (const stream of streams) await t.rejects(stream.text());
    watch.output(sidecar);
    await watch.files(dataDir);
  });

  await t.test('one byte of the spool is damaged', async (t) => {
    const usage = path('data/usage');
    const [segment = ''] = (await readdir(usage)).filter((name) => name.endsWith('.seg'));
    const bytes = await readFile(join(usage, segment));
    const at = bytes.indexOf('"kind":"open"');
    t.ok(at > 0);
    bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
    await writeFile(join(usage, segment), bytes);
  });

  await t.test('commands show it', async (t) => {
    const env = { RA_DATA_DIR: dataDir, RA_KEYS_FILE: path('keys.json'), RA_ENVIRONMENT: ENVIRONMENT };
    const commands = [
      [['usage', 'verify'], 1],
      [['usage', 'verify', '--json'], 1],
      [['usage', 'export'], 1],
      [['usage', 'export', '--format', 'csv'], 1],
      [['keys', 'list'], 0],
      [['keys', 'list', '--json'], 0],
      [['keys', 'revoke', KEYS.good.key], 1],
      [['keys', KEYS.good.key], 2],
    ] as const;
    const ran = [await runCli(commands[0][0], env)];
    for (const [args] of commands.slice(1)) ran.push(await runHere(args, env));
    t.same(
      ran.map(({ code }) => code),
      commands.map(([, code]) => code),
    );
    for (const command of ran) watch.command(command);
  });

  await t.test('it starts again, recovers, serves and stops', async (t) => {
    const second = await start();
    await second.logged('usage spool: damage quarantined');
    await second.logged('usage spool: requests closed at an estimate');
    t.same((await readdir(path('data/usage/quarantine'))).length, 1);
    await watch.replied(await second.post(CHATS, chatBody()));
    watch.processes(second.pid);
    await watch.pages(second);
    second.child.kill('SIGTERM');
    t.same(await second.exited(), { code: 0, signal: null });
    watch.output(second);
  });

  await t.test('no canary is found anywhere', async (t) => {
    for (const { path: to, headers, body } of sink.requests) {
      t.equal(headers.authorization, `Bearer ${SINK_SECRET}`);
      watch.saw('events', to, JSON.stringify({ ...headers, authorization: undefined }), body);
    }
    const names = (await watch.files(dataDir)).map((name) => name.slice(dataDir.length));
    for (const part of ['.seg', 'dead-letters.jsonl', 'balances.json', 'cursor.json', '/quarantine/']) {
      t.ok(
        names.some((name) => name.includes(part)),
        `${part} exists and was searched`,
      );
    }
    const secrets = [MARK, SINK_SECRET, ...Object.values(KEYS).flatMap(({ key }) => [key, hashKey(key)])];
    t.same(watch.places, ['stdout', 'stderr', 'pages', 'errors', 'heads', 'files', 'events', 'commands', 'processes']);
    t.same(watch.leaks(new LeakSearch(secrets, watch.phrases)), []);
  });
});
