import t from 'tap';
import { verify } from '../../../sidecar/usage/reader.js';
import { FakeDisk } from '../../support/fake-disk.js';
import { DIR, SpoolHarness } from '../../support/spool-harness.js';
import { readAll, short, usageRecord } from '../../support/usage-records.js';
import { cases, rounds } from '../../support/long-form.js';

/** Files of a properly closed spool, by path. */
type Files = ReadonlyMap<string, Buffer>;

/** A spool of closed requests in some segments. */
async function closedSpool(requests: number, segmentBytes: number): Promise<Files> {
  const harness = await SpoolHarness.start({ segmentBytes });
  for (let i = 0; i < requests; i++) {
    for (const kind of ['open', 'close'] as const) harness.spool.append(usageRecord(`id-${i}`, kind, { account: '' }));
    await harness.pass(5);
  }
  await harness.spool.close();
  return new Map([...harness.disk.files].map(([path, { bytes }]) => [path, bytes]));
}

/** The records whose line contains one of `bytes` bytes from `from` on: short names. */
function touched(file: Buffer, from: number, bytes: number): Set<string> {
  const hit = new Set<string>();
  let at = 0;
  for (const line of file.toString('latin1').split('\n').slice(0, -1)) {
    const end = at + line.length + 1;
    if (at < from + bytes && end > from) {
      const value = JSON.parse(line.slice(line.indexOf('{'))) as { id?: string; kind: string };
      if (value.id !== undefined) hit.add(`${value.id}:${value.kind}`);
    }
    at = end;
  }
  return hit;
}

async function names(disk: FakeDisk): Promise<string[]> {
  return (await readAll(DIR, { disk })).records.map(short);
}

/** Damages one file; returns what is wrong with the results of verify, recovery and reading. */
async function afterDamage(files: Files, path: string, damaged: Buffer, hit: ReadonlySet<string>): Promise<string[]> {
  const disk = new FakeDisk();
  const changed = new Map(files).set(path, damaged);
  for (const [each, bytes] of changed) disk.put(each, bytes);
  const wrong: string[] = [];
  const { findings } = await verify(DIR, false, disk);
  if (findings.length === 0) wrong.push('verify finds nothing');
  const harness = await SpoolHarness.on(changed);
  await harness.spool.close();
  const all = [...files.values()].flatMap((bytes) => [...touched(bytes, 0, Infinity)]);
  const found = await names(harness.disk);
  for (const name of all) if (!hit.has(name) && !found.includes(name)) wrong.push(`lost ${name}`);
  for (const name of found) if (!all.includes(name)) wrong.push(`invented ${name}`);
  if (new Set(found).size !== found.length) wrong.push(`twice: ${found.join(' ')}`);
  return wrong;
}

/** Another byte in a byte’s place: a flipped bit at either end, a line cut in two, a lost byte. */
const CHANGES: readonly ((byte: number) => number)[] = [(byte) => byte ^ 1, (byte) => byte ^ 0x80, () => 0x0a, () => 0];

t.test('any changed byte of a small spool', async (t) => {
  const files = await closedSpool(2, 400);
  t.ok(files.size > 1, 'segments');
  let tried = 0;
  for (const [path, bytes] of files) {
    for (let at = 0; at < bytes.length; at++) {
      // The short form tests one change a byte, each kind in turn.
      for (const change of cases(CHANGES, (_, kind) => kind === at % CHANGES.length)) {
        const damaged = Buffer.from(bytes);
        damaged[at] = change(bytes[at]!);
        if (damaged[at] === bytes[at]) continue;
        tried++;
        const wrong = await afterDamage(files, path, damaged, touched(bytes, at, 1));
        if (wrong.length > 0) t.fail(`${path} ${at}: ${wrong.join('; ')}`);
      }
    }
  }
  t.ok(tried > rounds({ short: 250, long: 3000 }), `${tried} cases`);
});

t.test('a small spool cut anywhere', async (t) => {
  const files = await closedSpool(2, 400);
  for (const [path, bytes] of files) {
    for (let end = 0; end < bytes.length; end += rounds({ short: 3, long: 1 })) {
      const wrong = await afterDamage(files, path, bytes.subarray(0, end), touched(bytes, end, Infinity));
      if (wrong.length > 0) t.fail(`${path} ${end}: ${wrong.join('; ')}`);
    }
  }
});

t.test('a large spool with random damage', async (t) => {
  const count = Number(process.argv[2] ?? rounds({ short: 6, long: 60 }));
  const files = await closedSpool(400, 40_000);
  const paths = [...files.keys()];
  const random = (below: number): number => Math.floor(Math.random() * below);
  for (let round = 0; round < count; round++) {
    const path = paths[random(paths.length)]!;
    const bytes = files.get(path)!;
    const damaged = Buffer.from(bytes);
    const at = random(bytes.length);
    const length = Math.min(1 + random(round % 2 === 0 ? 1 : 3000), bytes.length - at);
    for (let i = at; i < at + length; i++) damaged[i] = random(256);
    if (damaged.equals(bytes)) continue;
    // A line may begin within the damaged bytes, and the previous line then has no end.
    const wrong = await afterDamage(files, path, damaged, touched(bytes, at, length + 1));
    t.strictSame(
      wrong,
      [],
      `${path}: ${length} bytes from ${at}: ${damaged.toString('hex', at, at + Math.min(length, 40))}`,
    );
  }
});

t.test('a missing segment', async (t) => {
  const files = await closedSpool(6, 500);
  const paths = [...files.keys()].sort();
  for (const gone of paths.slice(1)) {
    const disk = new FakeDisk();
    for (const [path, bytes] of files) if (path !== gone) disk.put(path, bytes);
    const { findings } = await verify(DIR, false, disk);
    t.equal(findings.length, 1, gone);
  }
});

t.test('a spool without damage has no findings; one that is being written has no end yet', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 500 });
  t.strictSame(await verify(DIR, false, harness.disk), { segments: 0, records: 0, findings: [] });
  harness.spool.append(usageRecord('a', 'open'));
  harness.spool.append(usageRecord('b', 'open'));
  harness.spool.append(usageRecord('b', 'close'));
  await harness.pass(5);
  harness.spool.append(usageRecord('a', 'close'));
  await harness.pass(5);
  t.match(await verify(DIR, true, harness.disk), { segments: 2, records: 4, findings: [] });
  t.match((await verify(DIR, false, harness.disk)).findings, [{ kind: 'unfinished', segment: 2, bytes: 0 }]);
});
