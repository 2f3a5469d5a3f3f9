import { spawn, spawnSync } from 'node:child_process';
import { appendFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { usage } from '../../../sidecar/commands/usage.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { Spool } from '../../../sidecar/usage/spool.js';
import { totalsDir } from '../../../sidecar/usage/totals-files.js';
import { Totals } from '../../../sidecar/usage/totals.js';
import { encode, encodeMark, segmentPath } from '../../../sidecar/usage/spool-format.js';
import { runHere } from '../../support/command-here.js';
import { FakeClock } from '../../support/fake-clock.js';
import { OPTIONS } from '../../support/spool-harness.js';
import { usageRecord } from '../../support/usage-records.js';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { deferred } from '../../support/http-server.js';

const CLI = fileURLToPath(new URL('../../../sidecar/cli.js', import.meta.url));

function configOf(dataDir: string): Config {
  const loaded = loadConfig({ RA_DATA_DIR: dataDir });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

async function run(args: readonly string[], config: Config): Promise<{ code: number; text: string }> {
  let text = '';
  const out = new Writable({
    write: (part, _, done) => {
      text += String(part);
      done();
    },
  });
  const code = await usage(config, args, { out, err: (part) => (text += part) });
  return { code, text };
}

/** A spool on the real disk with one closed request. */
async function spoolIn(dataDir: string): Promise<Spool> {
  const opened = await Spool.open(join(dataDir, 'usage'), { ...OPTIONS, groupRecords: 1 }, { clock: new FakeClock() });
  if (opened.kind === 'held') throw new Error('held');
  const record = usageRecord('a', 'close');
  opened.spool.append(record);
  await opened.spool.sync(record);
  return opened.spool;
}

t.test('export in the columns of FOCUS: the sums of each hour, also when the records are deleted', async (t) => {
  const config = configOf(t.testdir({}));
  const spool = await spoolIn(config.dataDir);
  const args = ['export', '--format', 'focus', '--provider', 'Us, "Inc"', '--billing-account', 'b-1'];
  const exported = await run(args, config);
  t.equal(exported.code, 0);
  const [head, input, output, ...others] = exported.text.split('\n');
  t.match(head, /^BilledCost,BillingAccountId,BillingAccountName,/);
  t.match(input, /^0,b-1,b-1,USD,2026-11-01T00:00:00Z,2026-10-01T00:00:00Z,Usage,,Input Tokens of ra-tiny-chat,/);
  t.match(input, /,2026-10-03T01:00:00Z,2026-10-03T00:00:00Z,12,Tokens,0,0,0,"Us, ""Inc""",0,/);
  t.match(output, /,Generative AI,ra-tiny-chat,Output Tokens,.*,acme,acme,key-1,default$/);
  t.match(input, /,AI and Machine Learning,Model inference,/);
  const named = await run([...args, '--service', 'Chats'], config);
  t.equal(named.text, exported.text.replaceAll(',Model inference,', ',Chats,'));
  t.strictSame(others, ['']);

  const nothing = (): void => undefined;
  const listener = { damaged: nothing, unwritten: nothing, unreadable: nothing, incomplete: nothing };
  const dir = totalsDir(join(config.dataDir, 'usage'));
  const totals = await Totals.open({ clock: new FakeClock(), spool, dir, listener });
  await totals.sums.close();
  await spool.close();
  t.strictSame(await run(args, config), exported, 'with snapshots');
  rmSync(segmentPath(join(config.dataDir, 'usage'), 1));
  t.strictSame(await run(args, config), exported, 'without the records');
  t.strictSame(await run([...args, '--to', '2026-10-03T01:00:00Z'], config), exported);
  for (const from of ['2026-10-03T01:00:00Z', '2026-10-04'])
    t.equal((await run([...args, '--from', from], config)).text, `${head}\n`);
  rmSync(join(dir, '2026-10-03T00.json'));
  const asDay = exported.text.replaceAll('2026-10-03T01:00:00Z', '2026-10-04T00:00:00Z');
  t.equal((await run(args, config)).text, asDay, 'of an hour that is not known, its day');
  t.equal((await run([...args, '--account', 'other'], config)).text, `${head}\n`);
  writeFileSync(join(dir, '2026-10-03.json'), '{');
  t.match(await run(args, config), { code: 1, text: /2026-10-03.json is damaged/ });
});

t.test(
  'exports of parts of a day, each after its end, are that of the day; what is late comes with the last',
  async (t) => {
    const config = configOf(t.testdir({}));
    const spool = await spoolIn(config.dataDir);
    const nothing = (): void => undefined;
    const listener = { damaged: nothing, unwritten: nothing, unreadable: nothing, incomplete: nothing };
    const dir = totalsDir(join(config.dataDir, 'usage'));
    const totals = await Totals.open({ clock: new FakeClock(), spool, dir, listener });
    const bill = async (id: string, hour: string): Promise<void> => {
      const record = usageRecord(id, 'close', { at: `2026-10-03T${hour}:30:00.000Z` });
      spool.append(record);
      await spool.sync(record);
      await totals.sums.snapshot();
    };
    const rows = async (from: string, to: string): Promise<string[]> => {
      const args = ['export', '--format', 'focus', '--from', from, '--to', to];
      return (await run(args, config)).text.trim().split('\n').slice(1);
    };
    const parts = await rows('2026-10-03', '2026-10-03T10:00Z');
    for (const [id, hour, end] of [
      ['b', '10', '11'],
      ['c', '11', '12'],
      ['d', '12', '13'],
    ] as const) {
      await bill(id, hour);
      const own = await rows(`2026-10-03T${hour}:00Z`, `2026-10-03T${end}:00Z`);
      t.equal(own.length, 2, 'input and output');
      parts.push(...own);
    }
    await bill('late', '10');
    parts.push(...(await rows('2026-10-03T13:00Z', '2026-10-04')));
    t.equal(parts.length, 10);
    t.strictSame(parts.sort(), (await rows('2026-10-03', '2026-10-04')).sort());
    await totals.sums.close();
    await spool.close();
  },
);

t.test('the row of a day that is not over comes with an export of the day from its start alone', async (t) => {
  const config = configOf(t.testdir({}));
  const spool = await spoolIn(config.dataDir);
  const record = usageRecord('b', 'close', { at: '2999-10-03T12:00:00.000Z' });
  spool.append(record);
  await spool.sync(record);
  const nothing = (): void => undefined;
  const listener = { damaged: nothing, unwritten: nothing, unreadable: nothing, incomplete: nothing };
  const dir = totalsDir(join(config.dataDir, 'usage'));
  const totals = await Totals.open({ clock: new FakeClock(), spool, dir, listener });
  await totals.sums.close();
  await spool.close();
  rmSync(segmentPath(join(config.dataDir, 'usage'), 1));
  for (const hour of ['2026-10-03T00', '2999-10-03T12']) rmSync(join(dir, `${hour}.json`));
  const days = async (...times: string[]): Promise<(string | undefined)[]> => {
    const { text } = await run(['export', '--format', 'focus', ...times], config);
    return Array.from(text.matchAll(/,(\d{4}-\d\d-\d\d)T00:00:00Z,\d+,Tokens,.*Input Tokens,/g), ([, day]) => day);
  };
  t.strictSame(await days(), ['2026-10-03', '2999-10-03']);
  t.strictSame(await days('--from', '2999-10-03'), ['2999-10-03']);
  t.strictSame(await days('--from', '2026-10-03T05:00Z', '--to', '2026-10-04'), ['2026-10-03']);
  for (const end of [[], ['--to', '2999-10-04']])
    t.strictSame(await days('--from', '2999-10-03T05:00Z', ...end), [], 'or the next export would have it again');
});

t.test('verify: 0 for a spool without problems, also while it is written and before its first record', async (t) => {
  const config = configOf(t.testdir({ usage: {} }));
  t.strictSame(await run(['verify', '--json'], config), {
    code: 0,
    text: '{"segments":0,"records":0,"findings":[]}\n',
  });
  const spool = await spoolIn(config.dataDir);
  t.match(await run(['verify', '--json'], config), { code: 0, text: '{"segments":1,"records":1,"findings":[]}\n' });
  await spool.close();
  t.match(await run(['verify'], config), { code: 0, text: /: 1 segments, 1 records, no damage\n$/ });
});

t.test('verify: 1 for damage, for a missing segment and for a cut end', async (t) => {
  const config = configOf(t.testdir());
  const dir = join(config.dataDir, 'usage');
  mkdirSync(dir);
  writeFileSync(segmentPath(dir, 1), 'rubbish\n');
  t.match(await run(['verify'], config), { code: 1, text: /^segment 1: 8 bytes from offset 0 are damaged/ });
  t.match(await run(['verify'], config), { text: /^segment 1: the spool was not closed: it stops at offset 8/m });
  t.match(JSON.parse((await run(['verify', '--json'], config)).text), {
    findings: [
      { kind: 'damage', segment: 1, offset: 0, bytes: 8 },
      { kind: 'unfinished', segment: 1, offset: 8, bytes: 0 },
    ],
  });
  writeFileSync(segmentPath(dir, 5), '48 00000000 {"kind":"head","after":{"segment":4,"offset":9}}\n');
  t.equal((await run(['verify'], config)).code, 1);
});

t.test('anything else is a wrong command line', async (t) => {
  for (const args of [[], ['verfy'], ['verify', '--yaml']]) {
    const { code, stderr } = await runHere(['usage', ...args], { RA_DATA_DIR: t.testdir() });
    t.equal(code, 2, args.join(' '));
    t.match(stderr, /^ra-sidecar: .*\n\nusage: ra-sidecar usage verify/);
  }
});

t.test('the program calls the command, and prints nothing else on stdout', async (t) => {
  const dataDir = t.testdir({ usage: {} });
  const cli = (...args: string[]): ReturnType<typeof spawnSync> =>
    spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8', env: { ...process.env, RA_DATA_DIR: dataDir } });
  t.match(cli('usage', 'verify', '--json'), { status: 0, stdout: '{"segments":0,"records":0,"findings":[]}\n' });
  t.match(cli('nonsense'), { status: 2, stderr: /usage verify\|export/ });
});

t.test('where there is no spool, the settings are probably wrong: one line and 1', async (t) => {
  const environment = { RA_DATA_DIR: t.testdir() };
  for (const action of ['verify', 'export']) {
    const { code, stdout, stderr } = await runHere(['usage', action], environment);
    t.strictSame([code, stdout], [1, ''], action);
    t.match(stderr, /^ra-sidecar: there is no usage spool at \S+\/usage: .*RA_DATA_DIR.*\n$/, action);
  }
});

t.test('a failing disk is no finding of verify but an error', async (t) => {
  const config = configOf(t.testdir({ usage: 'a file in place of a folder' }));
  await t.rejects(run(['verify'], config), { code: 'ENOTDIR' });
});

/** A spool of one segment, in its own folder. */
function spool(t: Test, ...records: readonly UsageRecord[]): string {
  const dir = join(t.testdir(), 'usage');
  mkdirSync(dir);
  writeFileSync(
    segmentPath(dir, 1),
    Buffer.concat([encodeMark({ kind: 'head', after: null }), ...records.map(encode)]),
  );
  return dir;
}

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly complaints: string;
}

/** `dir`: the spool's. */
function exporting(dir: string, args: readonly string[], out: Writable, err: (text: string) => void): Promise<number> {
  return usage(configOf(join(dir, '..')), ['export', ...args], { out, err });
}

async function runExport(dir: string, ...args: readonly string[]): Promise<Ran> {
  const chunks: string[] = [];
  let complaints = '';
  const out = new Writable({
    write: (chunk: Buffer, _, done) => {
      chunks.push(chunk.toString());
      done();
    },
  });
  const code = await exporting(dir, args, out, (line) => (complaints += line));
  return { code, out: chunks.join(''), complaints };
}

function ids(out: string): string[] {
  return out.split('\n').flatMap((line) => (line === '' ? [] : [(JSON.parse(line) as UsageRecord).id]));
}

const price = { version: '2026-10-03.4', picodollars: '18446744073709551615' };

t.test('only closing records, complete, in the order of the spool', async (t) => {
  const close = usageRecord('a', 'close', { price });
  const dir = spool(t, usageRecord('b', 'open'), usageRecord('a', 'open'), close, usageRecord('b', 'close'));
  const { code, out, complaints } = await runExport(dir);
  t.equal(code, 0);
  t.equal(complaints, '');
  t.strictSame(ids(out), ['a', 'b']);
  t.strictSame(JSON.parse(out.split('\n')[0] ?? ''), close);
});

t.test('the sums of one account, in the columns of FOCUS, are of each of its keys', async (t) => {
  const other = usageRecord('c', 'close', { account: 'other' });
  const dir = spool(t, usageRecord('a', 'close'), usageRecord('b', 'close', { keyId: 'key-2' }), other);
  const args = ['--format', 'focus', '--provider', 'p', '--billing-account', 'b', '--account', 'acme'];
  const { out } = await runExport(dir, ...args);
  const keys = out.matchAll(/,([^,\n]+),([^,\n]+),default$/gm);
  t.strictSame(
    new Set(Array.from(keys, ([, account, key]) => `${account} ${key}`)),
    new Set(['acme key-1', 'acme key-2']),
  );
});

t.test('from a time on, before a time, of one account', async (t) => {
  const at = (id: string, time: string, account = 'acme'): UsageRecord =>
    usageRecord(id, 'close', { at: time, account });
  const dir = spool(
    t,
    at('a', '2026-10-01T23:59:59.999Z'),
    at('b', '2026-10-02T00:00:00.000Z'),
    at('c', '2026-10-02T12:00:00.000Z', 'other'),
    at('d', '2026-10-03T00:00:00.000Z'),
  );
  const found = async (...args: string[]): Promise<string> => ids((await runExport(dir, ...args)).out).join('');
  t.equal(await found('--from', '2026-10-02'), 'bcd');
  t.equal(await found('--to', '2026-10-02'), 'a');
  t.equal(await found('--to', '2028-02-29'), await found());
  t.equal(await found('--from=2026-10-02T02:00:00+02:00', '--to=2026-10-03T00:00Z'), 'bc');
  t.equal(await found('--account', 'other'), 'c');
  t.equal(await found('--account', 'nobody'), '');
});

t.test('CSV has a header, all columns, and quotes where needed', async (t) => {
  const record = usageRecord('a', 'close', { account: 'a "b", c', price, estimated: true, tier: 'flex' });
  const { out } = await runExport(spool(t, record, usageRecord('b', 'close')), '--format', 'csv');
  t.equal(
    out,
    [
      'id,requestId,at,account,keyId,model,route,promptTokens,cachedTokens,completionTokens,priceVersion,picodollars,outcome,estimated,tier',
      'a,r-a,2026-10-03T00:00:00.000Z,"a ""b"", c",key-1,ra-tiny-chat,chat,12,0,34,2026-10-03.4,18446744073709551615,done,true,flex',
      'b,r-b,2026-10-03T00:00:00.000Z,acme,key-1,ra-tiny-chat,chat,12,0,34,,,done,,',
      '',
    ].join('\n'),
  );
});

t.test('a wrong command line is reported', async (t) => {
  const dir = spool(t);
  for (const args of [
    ['--from'],
    ['--from', 'yesterday'],
    ['--from', '2026-13-01'],
    ['--from', '2026-06-31'],
    ['--to', '2027-02-29T00:00:00+02:00'],
    ['--to', '2026-10-03T00:00:00'],
    ['--format', 'xml'],
    ['--color'],
    ['more'],
  ]) {
    const { code, stdout, stderr } = await runHere(['usage', 'export', ...args], { RA_DATA_DIR: join(dir, '..') });
    t.strictSame([code, stdout], [2, ''], args.join(' '));
    t.match(stderr, /^ra-sidecar: .*\n\nusage: ra-sidecar usage export/);
  }
});

t.test('an empty spool gives an empty export; without a spool it is an error', async (t) => {
  t.strictSame(await runExport(join(t.testdir({ usage: {} }), 'usage')), { code: 0, out: '', complaints: '' });
  const dir = join(t.testdir(), 'usage');
  await t.rejects(runExport(dir), { message: `there is no usage spool at ${dir}: ` });
});

t.test('damage is skipped and reported', async (t) => {
  const dir = spool(t, usageRecord('a', 'close'));
  appendFileSync(segmentPath(dir, 1), 'rubbish\n');
  appendFileSync(segmentPath(dir, 1), encode(usageRecord('b', 'close')));
  const { code, out, complaints } = await runExport(dir);
  t.equal(code, 1);
  t.strictSame(ids(out), ['a', 'b']);
  t.match(complaints, /1 damaged places/);
});

t.test('it reads no faster than its reader', async (t) => {
  const dir = spool(t, ...Array.from({ length: 5000 }, (_, i) => usageRecord(`n${i}`, 'close')));
  let taken = 0;
  const slow = deferred();
  const first = deferred();
  const out = new Writable({
    highWaterMark: 1024,
    write: (line: Buffer, _, done) => {
      taken += line.length > 0 ? 1 : 0;
      first.resolve();
      void slow.promise.then(() => done());
    },
  });
  const exported = exporting(dir, [], out, () => undefined);
  await first.promise;
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(taken, 1);
  t.ok(out.writableLength < 4096, `${out.writableLength} bytes wait`);
  slow.resolve();
  t.equal(await exported, 0);
  t.equal(taken, 5000);
});

t.test('it ends once all of it is read', async (t) => {
  const dir = spool(t, usageRecord('a', 'close'), usageRecord('b', 'close'), usageRecord('c', 'close'));
  const taking: (() => void)[] = [];
  const out = new Writable({
    write: (chunk: Buffer, _, done) => {
      if (chunk.length > 0) taking.push(done);
      else done();
    },
  });
  let over = false as boolean;
  const exported = exporting(dir, [], out, () => undefined).finally(() => (over = true));
  for (let taken = 0; taken < 3; taken += 1) {
    while (taking.length === 0) await new Promise(setImmediate);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
    t.notOk(over, `${taken} of 3 taken`);
    taking.shift()?.();
  }
  t.equal(await exported, 0);
});

t.test('as a command', async (t) => {
  const dir = spool(t, ...Array.from({ length: 5000 }, (_, i) => usageRecord(`n${i}`, 'close')));
  const start = (...args: string[]): ReturnType<typeof spawn> =>
    spawn(process.execPath, [CLI, 'usage', 'export', ...args], {
      env: { ...process.env, RA_DATA_DIR: join(dir, '..') },
      stdio: ['ignore', 'pipe', 'pipe'],
    });

  await t.test('all of it arrives through a pipe', async (t) => {
    const child = start();
    let out = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (out += text));
    const [code] = (await once(child, 'close')) as [number];
    t.equal(code, 0);
    t.equal(ids(out).length, 5000);
  });

  await t.test('it ends when its reader closes the pipe', async (t) => {
    const child = start();
    let complaints = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (complaints += text));
    const { stdout } = child;
    stdout?.once('data', () => stdout.destroy());
    const [code] = (await once(child, 'close')) as [number];
    t.equal(code, 1);
    t.equal(complaints, '');
  });

  await t.test('a wrong command line has its own exit code', async (t) => {
    const [code] = (await once(start('--nonsense'), 'close')) as [number];
    t.equal(code, 2);
  });
});
