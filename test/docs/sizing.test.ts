import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';

/** GiB that the page assumes to be free on each card, and its compute memory. */
const FREE = [23.5, 47.4, 79.2, 139.7];
const COMPUTE = { least: 0.5, most: 0.6 };
const RESERVE = 0.25;
/** The weights are rounded to a tenth. */
const ROUNDED = 0.05;

t.test('sizing.md: the seats of each card follow from the weights and the shape of the model', (t) => {
  const page = readFileSync(join(sourceRoot, 'docs/sizing.md'), 'utf8');
  const rows = page.match(/^\| \d+ B, .*\|$/gm) ?? [];
  t.equal(rows.length, 6);
  let kvPerToken = 0;
  for (const row of rows) {
    const [model = '', , weights = '', ...cards] = row
      .slice(2, -2)
      .split('|')
      .map((cell) => cell.trim());
    const [, layers, heads, width] = /\((\d+), (\d+) × (\d+)\)/.exec(model) ?? [];
    if (layers !== undefined) kvPerToken = 2 * Number(layers) * Number(heads) * Number(width) * 2;
    const seats = (free: number, context: number, more: number): number => {
      const left = free - RESERVE - Number.parseFloat(weights) - more;
      return Math.max(0, Math.floor((left * 2 ** 30) / (context * kvPerToken)));
    };
    for (const [i, free] of FREE.entries()) {
      const [short = 0, long = 0] = cards[i] === 'none' ? [] : (cards[i]?.match(/\d+/g) ?? []).map(Number);
      for (const [context, listed] of [
        [8192, short],
        [32_768, long],
      ] as const) {
        const [least, most] = [
          seats(free, context, COMPUTE.most + ROUNDED),
          seats(free, context, COMPUTE.least - ROUNDED),
        ];
        t.ok(listed >= least && listed <= most, `${model}, ${weights}, ${free} GiB: ${listed} of ${least} to ${most}`);
      }
    }
  }
  t.end();
});
