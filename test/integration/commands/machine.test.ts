/**
 * `ra-sidecar check-config`, `doctor` and `bench` as an operator runs them, some in this process, and the command line.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { usableCores } from '../../../engine/protocol/usable-cores.js';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import type { Check } from '../../../sidecar/commands/host-checks.js';
import { allCommands } from '../../generate/cli-docs.js';
import { EMBEDDED_MODEL } from '../../../sidecar/engine-client/weight-files.js';
import { inspect } from '../../../sidecar/engine-client/inspector.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { runCli, type CommandResult } from '../../support/cli.js';
import { runHere } from '../../support/command-here.js';
import { testModel } from '../../support/models.js';
import { CHAT, Sidecar } from '../../support/sidecar.js';
import { cases, LONG } from '../../support/long-form.js';
import { sourceRoot } from '../../support/source-root.js';

const CLI = fileURLToPath(new URL('../../../sidecar/cli.js', import.meta.url));

const file = await testModel();

/** Ports that are free whatever else runs here. */
const PORTS = { RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' };

function models(...list: readonly object[]): Record<string, string> {
  return { ...PORTS, RA_MODELS: JSON.stringify(list) };
}

const small = { id: 'one', kind: 'chat', file, seats: 2, contextPerSeat: 256 };

interface Diagnosis {
  readonly ok: boolean;
  readonly checks: readonly Check[];
}

function diagnosis({ stdout }: CommandResult): Diagnosis {
  return JSON.parse(stdout) as Diagnosis;
}

t.test('a step of a small model, which doctor runs where there is a GPU', async (t) => {
  const ask = (name: string) => inspect('compute', { gpu: false, file: name }, { clock: systemClock });
  const computed = await ask(EMBEDDED_MODEL);
  t.ok(computed.kind === 'answer' && computed.answer.ms > 0, JSON.stringify(computed));
  t.match(await ask('none.gguf'), { kind: 'failed', reason: /none\.gguf|no such file|does not exist/i });
});

t.test('help goes to stdout, and needs no valid configuration', async (t) => {
  // command.test.ts checks the text of each help without a process.
  for (const [path] of cases(allCommands(), (_, index) => index < 2)) {
    const ran = await runCli([...path.split(' '), '--help'], { RA_NONSENSE: '1' });
    t.match(ran, { code: 0, stdout: new RegExp(`^usage: ra-sidecar ${path}\\b`), stderr: '' }, path);
  }
  const { stdout } = await runCli(['--help'], {});
  const [, pages = ''] = /^The pages are in (.*)$/m.exec(stdout) ?? [];
  t.ok(existsSync(join(pages, 'README.md')), pages);
  const wrongLines = [
    [[], /^ra-sidecar: a command is required\n\nusage: ra-sidecar COMMAND\n/],
    [['foo'], /^ra-sidecar: unknown command\n\nusage: ra-sidecar COMMAND\n/],
    [['serve', 'now'], /^ra-sidecar: too many arguments\n\nusage: ra-sidecar serve\n/],
    [['serve', '--port', '80'], /^ra-sidecar: Unknown option '--port'.*\n\nusage: ra-sidecar serve\n/],
  ] as const;
  for (const [args, stderr] of wrongLines)
    t.match(await runHere([...args]), { code: 2, stdout: '', stderr }, args.join(' '));
  const wrong = await runHere(['doctor'], { RA_NONSENSE: '1', RA_LISTEN_PORT: 'x' });
  t.match(wrong, {
    code: 1,
    stderr: /^config: RA_NONSENSE is not a setting \(environment\)\nand 1 more: ra-sidecar check-config\n$/,
  });
});

t.test('the version, which the package’s manifest has', async (t) => {
  const { version } = JSON.parse(await readFile(join(sourceRoot, 'package.json'), 'utf8')) as { version: string };
  t.match(await runHere(['--version']), { code: 0, stdout: `ra-sidecar ${version}\n`, stderr: '' });
});

t.test('check-config: the settings in force without secrets, or all problems', async (t) => {
  const dir = t.testdir();
  const path = join(dir, 'ra.jsonc');
  await writeFile(
    path,
    `{ "queue": { "maxWaitMs": 5 }, /* why */ "delivery": { "url": "https://a.example/in?token=hush" } }`,
  );
  const shown = await runCli(['check-config', path], { RA_LOG_LEVEL: 'warn' });
  t.match(shown, { code: 0, stderr: '' });
  t.match(JSON.parse(shown.stdout), {
    queue: { maxWaitMs: 5, waitingPerSeat: 8 },
    log: { level: 'warn' },
    delivery: { url: 'https://a.example/in?...' },
    models: [{ id: 'ra-tiny-chat' }, { id: 'ra-tiny-decide' }],
  });
  t.notMatch(shown.stdout, /hush/);
  t.strictSame(await readdir(dir), ['ra.jsonc'], 'nothing is made');

  await writeFile(path, '{ "queue": { "maxWaitMs": -5 }, "listen": { "prot": 1 } }');
  const wrong = await runHere(['check-config'], { RA_CONFIG: path, RA_LOG_LEVEL: 'loud' });
  t.match(wrong, { code: 1, stdout: '' });
  t.strictSame(
    wrong.stderr
      .split('\n')
      .map((line) => /^config: (\S+)/.exec(line)?.[1])
      .sort(),
    ['listen.prot', 'log.level', 'queue.maxWaitMs', undefined],
  );
  const reported = await runHere(['check-config', '--json', path]);
  t.match(reported, { code: 1, stderr: '' });
  t.match(JSON.parse(reported.stdout), { ok: false, problems: [/^config: /, /^config: /] });
  const hinted = await runHere(['check-config', '--json'], models({ ...small, kind: 'decision' }));
  t.match(JSON.parse(hinted.stdout), {
    ok: true,
    source: /^built-in defaults/,
    hints: [/contextPerSeat is below 8192/],
    config: { queue: {} },
  });
});

t.test('doctor: what a start would use of this machine, and why', async (t) => {
  const dir = t.testdir();
  const ran = await runHere(['doctor', '--json'], { ...models(small), RA_DATA_DIR: join(dir, 'data') });
  t.match(ran, { code: 0, stderr: '' });
  const { ok, checks } = diagnosis(ran);
  t.equal(ok, true);
  const says = (what: string): string => checks.find((check) => check.what === what)?.says ?? 'nothing';
  t.match(says('Node'), process.versions.node);
  t.match(
    says('backend'),
    /^(CPU|cuda|vulkan|metal).*\(auto: available are .*CPU(; no device was found)?\), (the package’s own|binaries built)/,
  );
  t.match(says('memory'), /^[\d.,]+ [GM]iB free of [\d.,]+ [GT]iB$/);
  t.match(says('cores'), /^\d+, for \d+ compute threads of 1 engines together$/);
  t.match(
    says('model one'),
    /^2 seats of 256 tokens \((?:\d+ would fit|256 would fit, the most that an engine can have)\) on .*thread.*; takes [\d.]+ MiB of memory, and up to [\d.]+ [GM]iB for its prefix cache$/,
  );
  t.strictSame(await readdir(dir), [], 'nothing is made');

  const text = await runHere(['doctor'], { ...models(small), RA_DATA_DIR: join(dir, 'data') });
  t.match(text, {
    code: 0,
    stderr: '',
    stdout: new RegExp(
      `^ok {4}configuration +built-in defaults \\(RA_CONFIG is not set\\), with RA_.* of the environment\\nok {4}ra-sidecar +[0-9.]+\\n(ok {4}|warn {2})Node +${process.versions.node}`,
    ),
  });
  t.match(text.stdout, /\d+ ok, \d+ warnings, 0 failures\n$/);
});

t.test('doctor: problems, each with what to do', async (t) => {
  const huge = { ...small, id: 'huge', seats: 256, contextPerSeat: 1_048_576, threads: 512, gpu: false };
  const lazy = { ...huge, id: 'lazy', load: 'lazy' };
  const gone = { ...small, id: 'gone', file: '/nowhere.gguf', gpu: 'metal' };
  const ran = await runHere(['doctor', '--json'], { ...models(huge, lazy, gone), RA_DATA_DIR: '/proc/none' });
  t.equal(ran.code, 1);
  const { ok, checks } = diagnosis(ran);
  t.equal(ok, false);
  const of = (what: string): Check | undefined => checks.find((check) => check.what === what);
  t.match(of('usage spool'), { level: 'fail', advice: /the user that the sidecar runs as/ });
  t.match(of('model huge'), {
    level: 'fail',
    says: /it needs [\d.,]+ GiB of memory \(weights/,
    advice: /models verify huge/,
  });
  t.match(of('model lazy'), { level: 'warn' }, 'the start does not need it');
  t.match(of('model gone'), { level: 'fail', says: 'the file does not exist' });
  t.match(
    checks.filter(({ what }) => what === 'backend'),
    [
      { level: 'ok' },
      { level: 'fail', says: 'there is no llama.cpp for the backend metal on this machine', advice: /set gpu/ },
    ],
  );
  t.match(of('cores'), { level: 'warn', advice: /set threads/ });
});

if (LONG) {
  t.test('doctor: an engine that uses every core gets the advice to leave one free', async (t) => {
    const cores = usableCores().cores;
    const ran = await runHere(['doctor', '--json'], {
      ...models({ ...small, threads: cores }),
      RA_DATA_DIR: join(t.testdir(), 'data'),
    });
    const { checks } = diagnosis(ran);
    const wanted = cores > 1 ? { level: 'warn', advice: /leave one core free/ } : { level: 'ok' };
    t.match(
      checks.find(({ what }) => what === 'cores'),
      wanted,
    );
  });

  t.test('doctor: the memory of a lazy model is not counted as missing when the start loads the others', async (t) => {
    const environment = { RA_DATA_DIR: t.testdir() };
    const verified = await runHere(['models', 'verify', '--json'], { ...models(small), ...environment });
    const [{ memory }] = JSON.parse(verified.stdout) as readonly [{ memory: { usable: number } }];
    // Two of them do not fit, however the machine’s use changes; the test model takes 256 bytes for a token.
    const contextPerSeat = Math.min(1_048_576, Math.floor((0.6 * memory.usable) / 256 / 256));
    const share = { ...small, seats: 256, contextPerSeat };
    const lazies = Math.ceil((1.2 * memory.usable) / (contextPerSeat * 256 * 256)) - 1;
    const lazy = Array.from({ length: lazies }, (_, i) => ({ ...share, id: `lazy${i}`, load: 'lazy' }));
    const ran = await runHere(['doctor', '--json'], { ...models(...lazy, share), ...environment });
    t.match(
      diagnosis(ran).checks.filter(({ what }) => what === 'model one'),
      [{ level: 'ok' }],
    );
    t.equal(ran.code, 0);
  });
}

t.test('doctor: a failed step is reported, and leaves no file', async (t) => {
  const dir = t.testdir({ data: {} });
  // No file may grow: it is created and then gets no byte. Coverage’s hooks would write a file of their own.
  const args = ['-c', 'unset NODE_OPTIONS; ulimit -f 0; exec "$0" "$@"', process.execPath, CLI, 'doctor', '--json'];
  const options = { env: { ...process.env, ...models(small), RA_DATA_DIR: join(dir, 'data') } };
  const full = await new Promise<string>((resolve) => {
    execFile('bash', args, options, (_, stdout) => resolve(stdout));
  });
  t.match(
    (JSON.parse(full) as Diagnosis).checks.find(({ what }) => what === 'usage spool'),
    { level: 'fail', says: /cannot be written \(EFBIG\)/ },
  );
  t.strictSame(await readdir(join(dir, 'data')), []);
});

t.test(
  'doctor and verify beside a running sidecar: its ports and its memory are not reported as problems',
  async (t) => {
    const dataDir = t.testdir();
    const sidecar = await Sidecar.start(t, { config: { dataDir, models: [{ ...small, id: CHAT }] } });
    const ports = { RA_LISTEN_PORT: String(sidecar.port), RA_OPERATORS_PORT: String(sidecar.operatorsPort) };
    const huge = { ...small, id: 'huge', seats: 256, contextPerSeat: 1_048_576 };
    const environment = { ...models(small, huge), ...ports, RA_DATA_DIR: dataDir };
    const ran = await runHere(['doctor', '--json'], environment);
    const { ok, checks } = diagnosis(ran);
    t.equal(ok, true);
    t.equal(ran.code, 0);
    t.match(
      checks.filter(({ what }) => what.endsWith('address')),
      [
        { level: 'ok', says: /in use, and a sidecar runs/ },
        { level: 'ok', says: /in use, and a sidecar runs/ },
      ],
    );
    const held = /^it needs .* \(a sidecar that runs on this data folder uses a part of it now\)/;
    t.match(
      checks.filter(({ what }) => what.startsWith('model ')),
      [{ level: 'ok' }, { level: 'warn', says: held, advice: /while that sidecar is stopped/ }],
    );
    t.match(await runHere(['models', 'verify'], environment), {
      code: 0,
      stdout:
        /it can be served as a chat model\n(.*\n)*.*it can be served as a chat model, once there is enough memory\n$/,
    });
    const named = await runHere(['models', 'verify', 'huge', '--memory', '1GiB'], environment);
    t.match(named, { code: 1, stdout: /it cannot be served: it needs/ }, 'of a named amount of memory none is in use');
  },
);

t.test('bench: figures of the real engine, within the given time', async (t) => {
  const decide = { id: 'two', kind: 'decision', file, seats: 2, contextPerSeat: 512 };
  const environment = { ...models(small, decide), RA_DATA_DIR: t.testdir() };
  const ran = await runHere(['bench', '--seconds', '1', '--json'], environment);
  t.match(ran, { code: 0, stderr: '' });
  const figures = JSON.parse(ran.stdout) as readonly [Chat, Decisions];
  t.match(figures, [
    { id: 'one', kind: 'chat', seats: 2, threads: Number },
    { id: 'two', kind: 'decision', seats: 2 },
  ]);
  const [chat, decisions] = figures;
  for (const value of [
    chat.promptTokensPerSecond,
    chat.replyTokensPerSecond.oneSeat,
    chat.replyTokensPerSecond.allSeats,
    decisions.promptTokensPerSecond,
    decisions.decisionsPerSecond,
  ]) {
    t.ok(Number.isFinite(value) && value > 0, String(value));
  }
  t.ok(chat.promptTokensPerSecond > chat.replyTokensPerSecond.oneSeat, 'prompt tokens are faster than next tokens');

  t.match(await runHere(['bench', 'none'], environment), { code: 2, stdout: '', stderr: /there are one, two\n/ });
  t.match(await runHere(['bench', '--seconds', '61'], environment), { code: 2, stderr: /from 1 to 60/ });
  if (!LONG) return;
  const replicas = models({ ...small, replicas: 2, seats: 1 });
  const planned = await runHere(['bench', '--seconds', '1', '--json'], { ...replicas, RA_DATA_DIR: t.testdir() });
  const each = Math.max(1, Math.floor((usableCores().cores - 1) / 2));
  t.match(JSON.parse(planned.stdout), [{ id: 'one, replica 0', seats: 1, threads: each }], 'one of two that are alike');

  const text = await runHere(['bench', 'two', '--seconds', '1'], environment);
  t.match(text, { code: 0, stdout: /^MODEL +ON +SEATS.*\ntwo +\S.*\n$/, stderr: '' });
  const gone = await runHere(['bench'], { ...models({ ...small, file: '/nowhere.gguf' }), RA_DATA_DIR: t.testdir() });
  t.match(gone, {
    code: 1,
    stdout: '',
    stderr: 'ra-sidecar: model one: the engine ended (unable): the file does not exist\n',
  });
});

interface Chat {
  readonly promptTokensPerSecond: number;
  readonly replyTokensPerSecond: { readonly oneSeat: number; readonly allSeats: number };
}

interface Decisions {
  readonly promptTokensPerSecond: number;
  readonly decisionsPerSecond: number;
}
