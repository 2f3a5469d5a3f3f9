import t from 'tap';
import { chart, type Panel } from '../../../bench/support/chart.js';

function panel(title: string, ends: readonly number[]): Panel {
  const lines = ends.map((share, i) => ({
    name: `policy ${i}`,
    points: [
      { load: 1, share: 0.5 },
      { load: 10, share },
    ],
  }));
  return { title, unit: 'share of all', percent: true, lines };
}

/** Heights of the labels at the lines’ ends, from the top. */
function names(svg: string): number[] {
  return [...svg.matchAll(/class="name t\d" x="[\d.]+" y="([\d.]+)"/g)].map(([, y]) => Number(y));
}

t.test('labels do not overlap, also where all lines end together, and stay beside the plot', async (t) => {
  for (const ends of [
    [1, 1, 1, 1, 1],
    [0, 0, 0, 0, 0],
    [0.5, 0.51, 0.5, 0.9, 0.91],
    [0, 0.25, 0.5, 0.75, 1],
  ]) {
    const heights = names(chart('Title', 'Subtitle', [panel('Panel', ends)]));
    t.equal(heights.length, 5);
    t.ok(
      heights.every((height, i) => i === 0 || height - heights[i - 1]! >= 14.9),
      heights.join(' '),
    );
    t.ok(heights[0]! >= 44 && heights[4]! <= 212, heights.join(' '));
  }
});

t.test('labels without neighbours are at the height of their line’s end', async (t) => {
  t.strictSame(names(chart('Title', 'Subtitle', [panel('Panel', [0, 0.25, 0.5, 0.75, 1])])), [48, 88, 128, 168, 208]);
});

t.test('equal figures give equal bytes; text is escaped and has an alternative', async (t) => {
  const make = (): string => chart('A < B & C', 'Subtitle', [panel('Panel', [0.1, 0.2, 0.3, 0.4, 0.5])]);
  t.equal(make(), make());
  t.match(make(), '<title id="title">A &lt; B &amp; C</title>');
  t.match(make(), 'policy 4 50 % at 1×, 50 % at 10×.');
});
