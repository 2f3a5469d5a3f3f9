/** The page’s own computations: rates, the last minute of a histogram, quantiles, and their texts. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import type { HistogramView, Snapshot } from '../../../sidecar/console/views.js';
import { sourceRoot } from '../../support/source-root.js';

interface Point {
  readonly x: number;
  readonly value: number | null;
}

interface PageHistory {
  readonly base: Snapshot | undefined;
  readonly span: string;
  add(snapshot: Snapshot): void;
  curve(value: (now: Snapshot, before?: Snapshot) => number | null): Point[];
}

async function page<T>(name: string): Promise<T> {
  return (await import(pathToFileURL(join(sourceRoot, 'sidecar/console/page', name)).href)) as T;
}

const { History, perSecond, quantile, since } = await page<{
  readonly History: new () => PageHistory;
  readonly perSecond: (
    now: Snapshot,
    before: Snapshot | undefined,
    total: (snapshot: Snapshot) => number,
  ) => number | null;
  readonly quantile: (histogram: HistogramView, share: number) => number | null;
  readonly since: (now: HistogramView, before?: HistogramView) => HistogramView;
}>('history.js');
const { pathsOf } = await page<{
  readonly pathsOf: (points: readonly Point[]) => { readonly line: string; readonly area: string };
}>('sums.js');
const text = await page<
  Record<'duration' | 'age', (value: number) => string> & Record<'bytes' | 'rate', (value: number | null) => string>
>('text.js');

/** A snapshot of which only the time and the count of streams matter. */
function at(ms: number, streams = 0, startedAt = 0): Snapshot {
  return { at: ms, streams, startedAt } as Snapshot;
}

const streams = (snapshot: Snapshot): number => snapshot.streams;

t.test('the last minute begins with the oldest snapshot in it', async (t) => {
  const history = new History();
  t.equal(history.base, undefined);
  history.add(at(0));
  t.equal(history.base, undefined, 'one snapshot has no change');
  for (let second = 1; second <= 90; second += 1) history.add(at(second * 1000, second * 3));
  t.equal(history.base?.at, 30_000);
  t.equal(history.span, 'last minute');
  t.equal(perSecond(at(90_000, 270), history.base, streams), 3);
});

t.test(
  'before that the minute is as long as what is known, and without an earlier snapshot there is no rate',
  async (t) => {
    const history = new History();
    t.equal(history.span, 'last 0 s');
    history.add(at(0));
    t.equal(history.span, 'last 0 s');
    t.equal(perSecond(at(0), history.base, streams), null);
    for (let second = 1; second <= 48; second += 1) history.add(at(second * 1000));
    t.equal(history.span, 'last 48 s');
    history.add(at(49_000));
    t.equal(history.span, 'last minute');
  },
);

t.test('a restarted sidecar is counted anew', async (t) => {
  const history = new History();
  history.add(at(0, 500));
  history.add(at(1000, 510));
  history.add(at(2000, 1, 1500));
  t.equal(history.base, undefined, 'and no rate is negative');
  t.equal(perSecond(at(3000, 1), at(2000, 5), streams), 0);
});

t.test('after the clock was set back the page begins anew, without rates of 0 until the old time', async (t) => {
  const history = new History();
  for (let second = 0; second <= 30; second += 1) history.add(at(3_600_000 + second * 1000, second));
  history.add(at(1000, 31));
  t.equal(history.base, undefined);
  t.strictSame(history.curve(streams), [], 'no snapshot of the future is in a curve');
  history.add(at(2000, 35));
  t.equal(perSecond(at(2000, 35), history.base, streams), 4);
});

t.test('snapshots are kept for two minutes, however many', async (t) => {
  const history = new History();
  for (let i = 0; i < 5000; i += 1) history.add(at(i * 250, i));
  const curve = history.curve(streams);
  t.ok(curve.length >= 55 && curve.length <= 61, `${curve.length} points`);
  t.strictSame(curve.at(-1), { x: 1, value: 4999 });
  t.strictSame(
    curve,
    [...curve].sort((a, b) => a.x - b.x),
    'in order',
  );
});

t.test('a curve has its points at their times, and none where there was no value', async (t) => {
  const history = new History();
  for (const second of [0, 30, 60, 90, 120]) history.add(at(second * 1000, second === 60 ? 0 : second));
  const points = history.curve((snapshot) => snapshot.streams || null);
  t.strictSame(points, [
    { x: 0.25, value: 30 },
    { x: 0.5, value: null },
    { x: 0.75, value: 90 },
    { x: 1, value: 120 },
  ]);
  const { line, area } = pathsOf(points);
  t.match(line, /^M30\.0 \S+L30\.0 \S+M90\.0 \S+L120\.0 \S+$/, 'a dot, a gap, a line');
  t.match(area, /^M30\.0 [^M]+ZM90\.0 [^M]+L120\.0 28L90\.0 28Z$/);
  t.strictSame(pathsOf([{ x: 1, value: null }]), { line: '', area: '' });
});

t.test('a histogram of the last minute is the difference, and its quantiles are Prometheus’', async (t) => {
  const before = { bounds: [0.1, 0.5, 1], counts: [4, 4, 4, 4], sum: 0.2 };
  const now = { bounds: [0.1, 0.5, 1], counts: [4, 14, 24, 25], sum: 20.2 };
  const minute = since(now, before);
  t.strictSame(minute, { bounds: [0.1, 0.5, 1], counts: [0, 10, 20, 21], sum: 20 });
  // histogram_quantile(0.5): rank 10.5 is 0.5 of 10 into the bucket from 0.5 to 1.
  t.equal(quantile(minute, 0.5), 0.525);
  t.equal(quantile(minute, 1), 1, 'above the last bound it is that bound');
  t.equal(quantile(since(now, now), 0.5), null, 'of nothing there is none');
  t.equal(since(now), now, 'since the start');
});

t.test('numbers are short', async (t) => {
  t.strictSame([0, 0.25, 4.25, 640, 1500, 42_000, 600_000, 90_000_000].map(text.duration), [
    '0 ms',
    '0.25 ms',
    '4.3 ms',
    '640 ms',
    '1.5 s',
    '42 s',
    '10 min',
    '25 h',
  ]);
  t.strictSame([0, 900, 12_000].map(text.age), ['0.0 s', '0.9 s', '12 s']);
  t.strictSame([null, 0, 1536, 5 * 2 ** 30].map(text.bytes), ['–', '0 B', '1.5 KiB', '5.0 GiB']);
  t.strictSame([null, 0, 0.34, 12.4, 1234].map(text.rate), ['–', '0', '0.3', '12', '1,234']);
});
