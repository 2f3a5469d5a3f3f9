/**
 * What each rule of the seat queue is good for: the cells of ablation/cells.ts with each rule of ablation/rules.ts switched off alone, and
 * with some in pairs, on a simulated clock:
 *
 *     node dist/bench/admission/ablation.bench.js [PIECE] [MINUTES] [FOLDER] [RULES]
 *
 * It begins no cell after PIECE minutes (600), and goes on when it is called again: what was simulated is kept in FOLDER
 * (bench/.cache/ablation, a folder for each code). MINUTES (6) are simulated in each cell, with each of three seeds. RULES: names
 * with commas between; the results of these alone are printed and not kept.
 */
import { mkdirSync } from 'node:fs';
import { digestOf, filesOf } from '../support/bench-files.js';
import { keep, markdown, type Row } from '../support/results.js';
import { CELLS } from './ablation/cells.js';
import { CHANCE, RULES, type Rule } from './ablation/rules.js';
import { kept } from './patience/kept.js';

const pieceMs = Number(process.argv[2] ?? 600) * 60_000;
const minutes = Number(process.argv[3] ?? 6);
const digest = digestOf(filesOf('bench/admission/ablation.bench.ts'));
const folder = process.argv[4] ?? `bench/.cache/ablation/${digest}`;

const only = process.argv[5]?.split(',');

/** Each cell is simulated with each of these, and its measures are the means. */
const SEEDS = [1, 2, 3];

/** A loss of this much in one cell, of a measure whose best is 1, keeps a rule. */
const ENOUGH = 0.02;

/** The rules that lose least alone, in pairs that might replace each other. */
const PAIRS: readonly (readonly [string, string])[] = [
  ['standing by length', 'judged again'],
  ['exploring', 'one account left out'],
  ['surplus', 'fresh'],
  ['surplus', 'hopeless'],
  ['fresh', 'hopeless'],
  ['exploring', 'surplus'],
];

interface Variant {
  readonly name: string;
  readonly rules: readonly Rule[];
}

function ruleOf(name: string): Rule {
  const rule = RULES.find((each) => each.name === name);
  if (rule === undefined) throw new Error(`no rule ${name}`);
  return rule;
}

const VARIANTS: readonly Variant[] = [
  { name: 'all rules', rules: [] },
  { name: CHANCE.name, rules: [CHANCE] },
  ...RULES.filter(({ name }) => only?.includes(name) ?? true).map((rule) => ({ name: rule.name, rules: [rule] })),
  ...PAIRS.map((pair) => ({ name: pair.join(' + '), rules: pair.map(ruleOf) })),
];

mkdirSync(folder, { recursive: true });

/** What a cell measures without some rules: the means over all seeds. */
async function measured(
  cell: (typeof CELLS)[number],
  { name, rules }: Variant,
): Promise<Readonly<Record<string, number>>> {
  const sums: Record<string, number> = {};
  for (const seed of SEEDS) {
    const found = await kept(folder, `${minutes} ${seed} ${name} ${cell.name}`, async () => {
      const undo = rules.map(({ off }) => off());
      try {
        return await cell.run(minutes, seed);
      } finally {
        for (const each of undo.reverse()) each();
      }
    });
    for (const [measure, value] of Object.entries(found)) sums[measure] = (sums[measure] ?? 0) + value / SEEDS.length;
  }
  return sums;
}

const rows: Row[] = [];
let isDone = true;
for (const cell of CELLS) {
  const results: Readonly<Record<string, number>>[] = [];
  for (const variant of VARIANTS) {
    const { rules } = variant;
    if (rules.length > 0 && !rules.some(({ about }) => cell.has.includes(about))) results.push(results[0] ?? {});
    else if (performance.now() > pieceMs) isDone = false;
    else results.push(await measured(cell, variant));
  }
  if (results.length < VARIANTS.length) continue;
  const [base = {}, ...without] = results;
  for (const [measure, value] of Object.entries(base)) {
    const row: Record<string, string> = { cell: cell.name, measure, 'all rules': value.toFixed(3) };
    without.forEach((each, at) => (row[VARIANTS[at + 1]?.name ?? ''] = signed((each[measure] ?? 0) - value)));
    rows.push(row);
  }
  process.stdout.write(`${cell.name}: ${Math.round(performance.now() / 1000)} s\n`);
}
if (!isDone) process.stdout.write('more to do: call it again\n');

/** To three places; empty where nothing changed. */
function signed(value: number): string {
  return value === 0 ? '' : `${value > 0 ? '+' : ''}${value.toFixed(3)}`;
}

const extremes = VARIANTS.slice(1).map(({ name }): Row => {
  const of = rows.map((row) => ({ by: Number(row[name]), where: `${row['cell'] ?? ''}: ${row['measure'] ?? ''}` }));
  const sorted = of.sort((a, b) => a.by - b.by);
  const [worst, best] = [sorted[0], sorted.at(-1)];
  return {
    'without the rule': name,
    'largest loss': signed(Math.min(0, worst?.by ?? 0)),
    'in the cell': worst !== undefined && worst.by < 0 ? worst.where : '',
    'largest gain': signed(Math.max(0, best?.by ?? 0)),
    'in this one': best !== undefined && best.by > 0 ? best.where : '',
    'cells that lose 0.02': of.filter(({ by }) => by <= -ENOUGH).length,
  };
});
process.stdout.write(`${extremes.map((row) => Object.values(row).join(' | ')).join('\n')}\n`);
if (isDone && only === undefined) {
  await keep('ablation', {
    title: 'The queue without each of its rules',
    simulated: true,
    about: [
      `Each cell is one load on a simulated clock, of ${minutes} simulated minutes, with the same arrivals in all columns. The first column has what the queue reaches with all rules; each other one the difference if that rule is switched off, and is empty where nothing changes. Of all measures more is better and 1 is the most. The second has the difference if only the queue's random numbers are others: a rule's difference that is not larger than that, in the same cell, shows nothing. Means over ${SEEDS.length} seeds.`,
      'The cells: parts of the grids of [patience.md](patience.md), [admission.md](admission.md) and [conversations.md](conversations.md); callers who return after Retry-After; callers who disconnect on purpose; more accounts than may wait; bursts; classes in one account; seats of two lengths.',
    ],
    rows,
    conclusions: ['## The largest loss and gain of each rule', markdown(extremes)],
  });
}
