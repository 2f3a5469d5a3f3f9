import { mkdirSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { newsOf, spoolDir, spoolReader } from '../../../sidecar/app/compose-spool.js';
import { encodeMark } from '../../../sidecar/usage/record-line.js';
import { segmentPath, START, type Position } from '../../../sidecar/usage/segments.js';

t.test('the oldest records are the first ones if no segment was ever pruned, whatever its number', async (t) => {
  for (const [what, after, oldest] of [
    ['the first segment failed', null, START],
    ['older ones were pruned', { segment: 1, offset: 70 }, { segment: 2, offset: 0 }],
  ] as const satisfies readonly (readonly [string, Position | null, Position])[]) {
    const config = { dataDir: t.testdir() };
    const dir = spoolDir(config);
    const reader = spoolReader(config, { position: START, estimated: [] });
    t.strictSame(await reader.oldest(), START, 'there is none yet');
    mkdirSync(dir);
    writeFileSync(segmentPath(dir, 2), encodeMark({ kind: 'head', after }));
    t.strictSame(await reader.oldest(), oldest, what);
  }
});

t.test('a removed file is counted once, also one that is restored later', async (t) => {
  const isNews = newsOf();
  const removed = (segment: number, outcome: 'restored' | 'pending' | 'lost' | 'cut'): boolean =>
    isNews({ what: 'segment', segment, bytes: 1, outcome });
  t.ok(isNews({ what: 'lock' }));
  t.ok(removed(1, 'pending'));
  t.ok(removed(2, 'lost'));
  t.notOk(removed(1, 'restored'));
  t.ok(removed(1, 'restored'), 'it is removed again');
});
