/**
 * Agents' sessions with and without seats that are kept for them (sidecar/admission/sessions.ts), simulated:
 *
 *     node dist/bench/admission/sessions.bench.js [CELLS] [MINUTES]
 *
 * CELLS: a part of the names of the cells that are run and printed; all are kept among bench/results. MINUTES (60) are simulated.
 */
import { keep, type Row } from '../support/results.js';
import { CPU, GPU } from './sessions/stand-in-engine.js';
import { at, simulate, type Agents } from './sessions/simulate.js';

const only = process.argv[2] ?? '';
const minutes = Number(process.argv[3] ?? 60);
const KEEP_MAX_MS = 60_000;

const eight = (agents: number): number[] => Array.from({ length: 8 }, () => agents);
const base = { device: GPU, seats: 24, seed: 1, minutes, keepMaxMs: 0 } as const;

const CELLS: readonly (readonly [string, Agents])[] = [
  ...[12, 16, 24, 32, 48, 64, 96].map(
    (agents) => [`24 seats, ${agents} agents`, { ...base, agents: split(agents) }] as const,
  ),
  ['24 seats, 64 agents, seed 2', { ...base, agents: eight(8), seed: 2 }],
  ['24 seats, 64 agents, seed 3', { ...base, agents: eight(8), seed: 3 }],
  ['24 seats, pauses of 8 s', { ...base, agents: eight(8), pauseMs: 8000 }],
  ['24 seats, pauses of 30 s', { ...base, agents: eight(8), pauseMs: 30_000 }],
  ['24 seats, prompts shortened at turn 12', { ...base, agents: eight(8), compactsAt: 12 }],
  ['24 seats, a session beside each from turn 5 on', { ...base, agents: eight(6), forksAt: 5 }],
  ['24 seats, 36 agents of one account, 4 of each of seven', { ...base, agents: [36, 4, 4, 4, 4, 4, 4, 4] }],
  ['24 seats, 64 agents, single requests', { ...base, agents: eight(8), singlesPerSecond: 0.1 }],
  ['24 seats, 24 agents, 200 sessions an hour beside', { ...base, agents: eight(3), openPerHour: 200 }],
  ['8 seats, 64 agents', { ...base, seats: 8, agents: eight(8) }],
  ['8 seats, 64 agents, host cache', { ...base, seats: 8, agents: eight(8), hostTokens: 640_000 }],
  [
    'CPU, 8 seats, 16 agents, host cache of all',
    {
      ...base,
      device: CPU,
      seats: 8,
      agents: eight(2),
      hostTokens: 200_000,
      promptTokens: [400, 4000],
      replyTokens: [6, 44],
    },
  ],
  [
    'CPU, 8 seats, 64 agents, host cache of a quarter',
    {
      ...base,
      device: CPU,
      seats: 8,
      agents: eight(8),
      hostTokens: 64_000,
      promptTokens: [400, 4000],
      replyTokens: [6, 44],
    },
  ],
];

/** Agents of eight accounts, as evenly as can be. */
function split(agents: number): number[] {
  return Array.from({ length: 8 }, (_, i) => Math.floor((agents + i) / 8));
}

const rows: Row[] = [];
for (const [cell, load] of CELLS.filter(([name]) => name.includes(only))) {
  for (const [how, keepMaxMs] of [
    ['not kept', 0],
    ['kept', KEEP_MAX_MS],
  ] as const) {
    const found = await simulate({ ...load, keepMaxMs });
    const { reused, turnsPerSecond, first, further, sessions, singles, jain, refused, returned, turnsOf, report } =
      found;
    rows.push({
      cell,
      seats: how,
      'prompt tokens reused': reused.toFixed(3),
      'turns/s': turnsPerSecond.toFixed(2),
      'first turn p50, s': at(first, 0.5),
      'p99, s': at(first, 0.99),
      'further turn p50, s': at(further, 0.5),
      'p99, s ': at(further, 0.99),
      'session p50, s': at(sessions, 0.5),
      'single p99, s': singles.length > 0 ? at(singles, 0.99) : '',
      'Jain of turns': jain.toFixed(3),
      refused,
      'in after Retry-After': Number.isNaN(returned) ? '' : returned.toFixed(2),
      'seats taken': report.sessions.keeps.taken,
    });
    const { refused: reasons, sessions: counts } = report;
    process.stdout.write(`${JSON.stringify({ ...rows.at(-1), turnsOf, counts, reasons })}\n`);
  }
}

if (only === '') {
  await keep('sessions', {
    title: 'Agents’ sessions, with seats that are kept for them and without',
    simulated: true,
    about: [
      `The product's seat queue, and a stand-in engine with times measured of 8 B weights on a GPU (\`CPU\`: of 150 M weights, with a tenth of the tokens), on a simulated clock; ${minutes} minutes after ten that are not counted. Agents of eight accounts work on one session after the other, each of 20 turns from 4,000 to 40,000 prompt tokens; pauses between turns are 0.3 s mostly, 1 to 10 s for one in ten, longer for one in twenty. \`queue.maxWaitMs\` is 10 s; who is refused returns after Retry-After. Times are from the first try of a request to the end of its reply.`,
    ],
    rows,
  });
}
