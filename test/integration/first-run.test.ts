import { execFile, spawn } from 'node:child_process';
import { on, once } from 'node:events';
import { access, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { runHere } from '../support/command-here.js';
import { checked, chunksOf, contentOf } from '../support/replies.js';
import { Sidecar } from '../support/sidecar.js';

const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));
const dir = await mkdtemp(join(tmpdir(), 'ra-first-run-'));
t.teardown(() => rm(dir, { recursive: true, force: true }));
const dataDir = join(dir, 'data');

/** The defaults, except for what two processes on one machine cannot share. */
const environment = { RA_DATA_DIR: dataDir, RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' };

/** The curl lines as printed. */
function curlLines({ printed }: Sidecar): string[] {
  return printed.split('\n').filter((line) => line.startsWith('curl '));
}

/** A line as a user would paste it. */
async function paste(line: string): Promise<string> {
  const { stdout } = await promisify(execFile)('bash', ['-c', `${line} --silent --show-error --fail-with-body`]);
  return stdout;
}

async function stop(sidecar: Sidecar): Promise<void> {
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
}

let firstKey = '';

t.test('the first start creates a key, and prints two lines that work and whose answers make sense', async (t) => {
  const sidecar = await Sidecar.startWith(t, environment);
  const { printed, key } = sidecar;
  firstKey = key;
  t.ok(printed.includes(sidecar.base), 'the base address');
  t.match(
    printed,
    /^contract: +strict; .*set RA_CONTRACT=compatible$/m,
    'the development start uses the strict contract',
  );
  const source =
    'built-in defaults (RA_CONFIG is not set), with RA_LISTEN_PORT, RA_OPERATORS_PORT, RA_DATA_DIR of the environment';
  t.ok(printed.includes(`\nconfiguration:        ${source}\n`), printed);
  t.match(await sidecar.logged('starting'), { config: source });
  t.match(printed, /ra-tiny-chat \(chat, 8 seats\)/);
  t.match(printed, /ra-tiny-decide \(decision, 2 seats\)/);

  t.ok(printed.includes(`\nexport OPENAI_BASE_URL=${sidecar.base} OPENAI_API_KEY=${key} `));
  t.notMatch(printed, /codex|claude/, 'which need the other contract');

  const [chat = '', decision = '', ...more] = curlLines(sidecar);
  t.same(more, []);
  const chunks = chunksOf(await paste(chat));
  // It is sampled with a random seed, so that any reply that the model learned may come.
  t.match(contentOf(chunks), /\w/, 'a reply');
  t.match(chunks.at(-1)?.choices[0]?.finish_reason, /^(stop|length)$/, 'with an end');
  const likeliest = chunksOf(await paste(chat.replace('"messages"', '"temperature":0,"messages"')));
  t.match(contentOf(likeliest), /seedling|I can greet/, 'the likeliest reply introduces the model');
  t.equal(likeliest.at(-1)?.choices[0]?.finish_reason, 'stop', 'and ends its turn');
  const { answers } = checked('Decisions', await paste(decision)) as {
    answers: { refund: { probabilities: { yes: number; no: number } } };
  };
  t.same(Object.keys(answers.refund.probabilities), ['yes', 'no']);
  t.ok(answers.refund.probabilities.yes > 0.9, `P(yes) is ${answers.refund.probabilities.yes}`);
  await stop(sidecar);
});

/** Owns what runs until the last test has ended. */
const whole = t;
/** The second start. */
let second: Sidecar | undefined;

t.test('the second start prints a new key that works; the old one does not', async (t) => {
  const sidecar = (second = await Sidecar.startWith(whole, environment));
  t.match(sidecar.key, /^ra-dev-.{40,}/);
  t.not(sidecar.key, firstKey);
  for (const line of curlLines(sidecar)) t.ok(line.includes(sidecar.key));
  const status = async (key: string): Promise<number> =>
    (await fetch(`${sidecar.base}/models`, { headers: { authorization: `Bearer ${key}` } })).status;
  t.equal(await status(sidecar.key), 200);
  t.equal(await status(firstKey), 401);

  t.equal((await fetch(`http://127.0.0.1:${sidecar.port}/metrics`)).status, 404, 'only operators have the metrics');
  t.equal((await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/v1/models`)).status, 404, 'and no models');
  const page = await (await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/metrics`)).text();
  t.ok(page.includes('ra_sidecar_seats') && !page.includes(sidecar.key));
});

interface Run {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function serve(added: Readonly<Record<string, string>>): Promise<Run> {
  return new Promise((resolve) => {
    const env = { ...process.env, ...environment, ...added };
    execFile(process.execPath, [CLI, 'serve'], { env }, (error, stdout, stderr) =>
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr }),
    );
  });
}

t.test('an invalid configuration is reported in one line', async (t) => {
  const file = join(dir, 'config.jsonc');
  await writeFile(file, '{ "queue": { "maxWaitMs": -1 } }');
  const untouched = join(dir, 'untouched');
  const cases = [
    [{ RA_CONFIG: file }, /^config: queue\.maxWaitMs must .*config\.jsonc\)\n$/],
    [{ RA_CONFIG: join(dir, 'none.json') }, /^config: cannot be read: ENOENT .*none\.json\)\n$/],
    [{ RA_LISTEN_PORT: 'eighty' }, /^config: listen\.port must .*RA_LISTEN_PORT\)\n$/],
    [
      { RA_ENVIRONMENT: 'production' },
      /^config: models must be set where environment is production: the embedded models, .* \(built-in defaults \(RA_CONFIG is not set\), with RA_.*\)\n$/,
    ],
    [{ RA_LISTEN_PROT: '80' }, /^config: RA_LISTEN_PROT is not a setting; did you mean RA_LISTEN_PORT\? .*\n$/],
  ] as const;
  for (const [at, [added, line]] of cases.entries()) {
    const settings = { ...added, RA_DATA_DIR: untouched };
    const { code, stdout, stderr } =
      at === 0 ? await serve(settings) : await runHere(['serve'], { ...environment, ...settings });
    t.equal(code, 1);
    t.equal(stdout, '');
    t.match(stderr, line);
    t.equal(stderr.split('\n').length, 2, 'one line');
  }
  await t.rejects(access(untouched), 'and no file was created');
});

t.test('a signal while it starts ends it with 0', async (t) => {
  const env = { ...process.env, ...environment, RA_DATA_DIR: join(dir, 'stopped') };
  const child = spawn(process.execPath, [CLI, 'serve'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  // The operators' listener opens first; then the spool is read and the models are loaded.
  for await (const [chunk] of on(child.stdout, 'data', { close: ['end'] })) {
    if (String(chunk).includes('operators listening')) break;
  }
  child.kill('SIGTERM');
  t.strictSame(await ended, [0, null]);
});

t.test('a sidecar that npm started ends with npm, whose shell takes the signal', async (t) => {
  const env = { ...process.env, ...environment, RA_DATA_DIR: join(dir, 'npm'), npm_command: 'exec' };
  // The shell stays, as npm's does.
  const shell = spawn('sh', ['-c', '"$0" "$1" serve; exit', process.execPath, CLI], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let logged = '';
  for await (const [chunk] of on(shell.stdout, 'data', { close: ['end'] })) {
    // The sidecar holds the pipe open until it has ended.
    if (String(chunk).includes('operators listening')) shell.kill('SIGTERM');
    logged += String(chunk);
  }
  t.match(logged, /npm has ended/);
});

t.test('a data folder in use by another sidecar is reported in one line', async (t) => {
  const file = join(dataDir, 'keys.json');
  const before = await readFile(file, 'utf8');
  const { code, stderr } = await serve({});
  t.equal(code, 1);
  t.match(stderr, new RegExp(`^ra-sidecar: [^\\n]*process ${second?.pid}: [^\\n]*dataDir[^\\n]*\\n$`));
  t.equal(await readFile(file, 'utf8'), before, 'its key stays valid');
});

t.test('an address in use is reported in one line', async (t) => {
  const port = String(second?.port);
  const { code, stderr } = await serve({
    RA_LISTEN_PORT: port,
    RA_DATA_DIR: join(dir, 'another'),
  });
  t.equal(code, 1);
  t.match(stderr, new RegExp(`^ra-sidecar: [^\\n]*${port}[^\\n]*\\n$`));
});
