/** `ra-sidecar keys` as an operator runs it, alone and beside a running sidecar, mostly in this process. */
import { mkdtemp, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { hashKey, readKeyFile, writeKeyFile, type KeyFile } from '../../sidecar/access/key-file.js';
import { runCli, type CommandResult } from '../support/cli.js';
import { runHere } from '../support/command-here.js';
import { PATIENT_ENGINE } from '../support/config-parts.js';
import { rounds } from '../support/long-form.js';
import { endsWell, ENDLESS, OpenStream } from '../support/open-stream.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

const KEY = /^ra-key-[A-Za-z0-9_-]{43}\n$/;

/** A keys file in its own folder, and the command for it. */
class KeysFile {
  readonly file: string;
  /** Of the sidecar that uses the file; 0: there is none. */
  operatorsPort = 0;

  constructor(file: string) {
    this.file = file;
  }

  get #environment(): Readonly<Record<string, string>> {
    return { RA_KEYS_FILE: this.file, RA_OPERATORS_PORT: String(this.operatorsPort) };
  }

  static async open(t: Test): Promise<KeysFile> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-desk-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    return new KeysFile(join(dir, 'keys.json'));
  }

  keys(...args: readonly string[]): Promise<CommandResult> {
    return runHere(['keys', ...args], this.#environment);
  }

  /** The same in a process. */
  keysAlone(...args: readonly string[]): Promise<CommandResult> {
    return runCli(['keys', ...args], this.#environment);
  }

  content(): Promise<KeyFile> {
    return readKeyFile(this.file);
  }

  /** A new key and its id. */
  async create(...args: readonly string[]): Promise<NewKey> {
    return newKey(await this.keys('create', ...args));
  }
}

interface NewKey {
  readonly key: string;
  readonly id: string;
}

function newKey({ stdout, stderr }: CommandResult): NewKey {
  return { key: stdout.trim(), id: /key_[\w-]+/.exec(stderr)?.[0] ?? `no id in: ${stderr}` };
}

t.test('create prints the key once, alone on stdout, and stores all of its options', async (t) => {
  const desk = await KeysFile.open(t);
  const options =
    '--account acme --environment production --models a,b --routes chat,decisions --cohort pilots --expires 30d ' +
    '--class batch --limits decisions=8/100,chat=0/60 --tokens-per-minute 9000 --tokens-per-day 1000000 --tokens-per-month 5000000 ' +
    '--tiers flex,priority';
  const { code, stdout, stderr } = await desk.keysAlone('create', ...options.split(' '));
  t.equal(code, 0);
  t.match(stdout, KEY);
  const key = stdout.trim();
  t.notOk(stderr.includes(key));
  t.match(
    stderr,
    /^created key_[\w-]{12}; the key is shown this once, only its hash is stored\nwarning: --models names 2 models/,
  );
  const text = await readFile(desk.file, 'utf8');
  t.notOk(text.includes(key.slice('ra-key-'.length)));
  t.equal((await stat(desk.file)).mode & 0o777, 0o600);
  const [stored] = (await desk.content()).keys;
  const { stdout: row } = await desk.keys('list');
  t.match(
    row.split('\n')[1]?.split(/ {2,}/).slice(5),
    [
      'batch',
      'decisions=8/100,chat=0/60',
      'production:a,b',
      'production:chat,decisions',
      'production:pilots',
      'production:minute=9000,day=1000000,month=5000000',
    ],
    'list shows what the key may do',
  );
  const quotas = { tokensPerMinute: 9000, tokensPerDay: 1_000_000, tokensPerMonth: 5_000_000 };
  t.match(stored, {
    hash: hashKey(key),
    account: 'acme',
    class: 'batch',
    limits: { decisions: { inFlight: 8, perMinute: 100 }, chat: { inFlight: 0, perMinute: 60 } },
    entitlements: {
      production: {
        models: ['a', 'b'],
        routes: ['chat', 'decisions'],
        cohort: 'pilots',
        ...quotas,
        tiers: ['flex', 'priority'],
      },
    },
  });
  const days = (Date.parse(stored?.expires ?? '') - Date.parse(stored?.created ?? '')) / 86_400_000;
  t.ok(Math.abs(days - 30) < 0.01, `${days} days`);
});

t.test('list shows the quotas of accounts', async (t) => {
  const desk = await KeysFile.open(t);
  await desk.create('--account', 'acme');
  const quotas = { tokensPerMinute: 9000, tokensPerMonth: 5_000_000 };
  await writeKeyFile(desk.file, { ...(await desk.content()), accounts: { acme: quotas } });
  t.match((await desk.keys('list')).stdout, / {2}minute=9000,month=5000000\n/);
  t.match(JSON.parse((await desk.keys('list', '--json')).stdout), [{ accountTokens: quotas }]);
});

t.test('list shows states and no hashes; revoke and rotate change them', async (t) => {
  const desk = await KeysFile.open(t);
  t.match(await desk.keys('list'), {
    code: 0,
    stdout: /^ID +ACCOUNT +STATE +CREATED +EXPIRES +CLASS +LIMITS +MODELS +ROUTES +COHORT +TOKENS +ACCOUNT-TOKENS\n$/,
  });
  const kept = await desk.create('--account', 'acme');
  const gone = await desk.create('--account', 'acme', '--expires', '2099-01-31T00:00:00+01:00');
  t.match(await desk.keys('revoke', gone.id), { code: 0, stdout: '', stderr: `revoked ${gone.id}\n` });
  t.match(await desk.keys('revoke', gone.id), { code: 0, stderr: `${gone.id} was revoked before\n` });
  const revokedAt = (await desk.content()).keys[1]?.revoked;

  const rotated = await desk.keys('rotate', kept.id, '--grace', '24h');
  t.equal(rotated.code, 0);
  t.match(rotated.stdout, KEY);
  const [old, , next] = (await desk.content()).keys;
  const grace = Date.parse(old?.expires ?? '') - Date.now();
  t.ok(grace > 86_000_000 && grace <= 86_400_000, 'the old one stays valid for a day');
  t.match(next, { account: 'acme', hash: hashKey(rotated.stdout.trim()), entitlements: old?.entitlements });
  t.equal(next?.expires, undefined);
  const at = await desk.keys('rotate', next?.id ?? '');
  t.match(at, { code: 0, stdout: KEY });
  t.ok((await desk.content()).keys[2]?.revoked, 'without a grace period it is revoked');

  const list = await desk.keys('list');
  const shownRights = list.stdout.split('\n')[1]?.split(/ {2,}/).slice(5);
  t.match(shownRights, ['standard', 'default', 'development:all', 'all', '-', '-'], 'the defaults');
  t.match(
    list.stdout.split('\n').map((line) => line.split(/ {2,}/)[2]),
    ['STATE', 'good', 'revoked', 'revoked', 'good'],
  );
  const json = JSON.parse((await desk.keys('list', '--json')).stdout) as { id: string; state: string }[];
  t.match(json[1], { id: gone.id, state: 'revoked', revoked: revokedAt, expires: '2099-01-30T23:00:00.000Z' });
  const shown = `${list.stdout}${list.stderr}${JSON.stringify(json)}`;
  for (const { hash } of (await desk.content()).keys) t.notOk(shown.includes(hash));
  for (const { key } of [kept, gone]) t.notOk(shown.includes(key));
});

t.test('a keys file that is no JSON is reported in one line, and not replaced', async (t) => {
  const desk = await KeysFile.open(t);
  await writeFile(desk.file, '{');
  for (const args of [['list'], ['create', '--account', 'a']]) {
    const says = `ra-sidecar: keys: is not JSON (file ${desk.file})\n`;
    t.match(await desk.keys(...args), { code: 1, stdout: '', stderr: says }, args.join(' '));
  }
  t.equal(await readFile(desk.file, 'utf8'), '{');
});

t.test('several commands at once: no key is lost, and a stale lock does not block them', async (t) => {
  const desk = await KeysFile.open(t);
  const lock = `${desk.file}.lock`;
  await writeFile(lock, 'left behind');
  const past = new Date(Date.now() - 60_000);
  await utimes(lock, past, past);
  const made = await Promise.all(
    Array.from({ length: rounds({ short: 3, long: 6 }) }, async (_, i) =>
      newKey(await desk.keysAlone('create', '--account', `account-${i}`)),
    ),
  );
  const { keys } = await desk.content();
  t.strictSame(keys.map(({ id }) => id).sort(), made.map(({ id }) => id).sort());
  await t.rejects(stat(lock), { code: 'ENOENT' }, 'the lock is removed');
});

t.test(
  'a running sidecar accepts a new key without a restart, and refuses a revoked one from the end of the command on',
  async (t) => {
    const dir = await mkdtemp(join(tmpdir(), 'ra-desk-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const desk = new KeysFile(join(dir, 'keys.json'));
    const sidecar = await Sidecar.start(t, {
      stub: true,
      // The engine is stopped while the commands run and must not be considered hung.
      config: { ...(await chatOnly(1, 8192)), keys: { file: desk.file }, engine: PATIENT_ENGINE },
    });
    const status = async (key: string): Promise<number> =>
      (await fetch(`${sidecar.base}/models`, { headers: { authorization: `Bearer ${key}` } })).status;
    const refusals = 'keys file refused, the last valid keys stay in force';

    const { key, id } = await desk.create('--account', 'acme');
    const both = (line: { readonly [field: string]: unknown }): boolean => line['count'] === 2;
    t.equal(await status(key), 200, 'the first request with a new key, without a wait');
    await sidecar.logged('keys loaded', 1, both);

    const developer = sidecar.key;
    sidecar.key = key;
    const stream = await OpenStream.begin(sidecar, { ...ENDLESS, max_tokens: 300 });
    // Stopped, it cannot finish before the test has looked.
    process.kill(sidecar.enginePid(CHAT), 'SIGSTOP');
    desk.operatorsPort = sidecar.operatorsPort;
    t.match(await desk.keys('revoke', id), {
      code: 0,
      stderr: `revoked ${id}\nthe sidecar at 127.0.0.1:${sidecar.operatorsPort} rejects the key from now on; any other sidecar that uses ${desk.file} reads it within 2 s (keys.pollMs)\n`,
    });
    t.equal(await status(key), 401, 'the first request after the command');
    await sidecar.logged('keys loaded', 2, both);
    t.match(await (await sidecar.chat(ENDLESS)).json(), { error: { code: 'revoked_api_key' } });
    t.equal(await sidecar.metric('ra_sidecar_streams_running'), 1);
    process.kill(sidecar.enginePid(CHAT), 'SIGCONT');
    endsWell(t, await stream.response);

    // An invalid file and a missing one leave the keys in force.
    const good = await readFile(desk.file, 'utf8');
    await writeFile(desk.file, 'not JSON');
    t.match(await sidecar.logged(refusals), { level: 50, file: desk.file, reason: 'is not JSON' });
    t.equal(await status(developer), 200);
    await rm(desk.file);
    await sidecar.logged(refusals, 1, ({ reason }) => reason === 'does not exist');
    t.equal(await status(developer), 200);
    t.equal(await status(key), 401);
    t.ok((await sidecar.metric('ra_sidecar_keys_reload_failures_total')) >= 2);
    t.equal(await sidecar.metric('ra_sidecar_keys_file_valid'), 0);
    await writeFile(desk.file, good);
    await sidecar.logged('keys loaded', 3, both);
    t.equal(await sidecar.metric('ra_sidecar_keys_file_valid'), 1);
    sidecar.child.kill('SIGHUP');
    t.match(
      await sidecar.logged('keys loaded', 4, both),
      { file: desk.file },
      'SIGHUP reloads the file, also an unchanged one',
    );
  },
);
