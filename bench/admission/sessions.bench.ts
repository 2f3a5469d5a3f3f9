/**
 * Agents' sessions with and without seats that are kept for them (sidecar/admission/sessions.ts), simulated:
 *
 *     node dist/bench/admission/sessions.bench.js [CELLS] [MINUTES]
 *
 * CELLS: a part of the names of the cells that are run and printed; all are kept among bench/results. MINUTES (60) are simulated.
 */
import { chart, type Panel } from '../support/chart.js';
import { keep, keepFile, type Row } from '../support/results.js';
import { CPU, GPU } from './sessions/stand-in-engine.js';
import { at, simulate, type AgentFigures, type Agents } from './sessions/simulate.js';

const only = process.argv[2] ?? '';
const minutes = Number(process.argv[3] ?? 60);
const KEEP_MAX_MS = 120_000;
const CHART = 'sessions.svg';
const SEATS = 24;
const AGENTS = [12, 16, 24, 32, 48, 64, 96] as const;

const eight = (agents: number): number[] => Array.from({ length: 8 }, () => agents);
const base = { device: GPU, seats: SEATS, seed: 1, minutes, keepMaxMs: 0 } as const;

/** For as many turns as on a GPU: an account of 64 agents makes 15 sessions an hour, too few for an index of its share. */
const onCpu = {
  ...base,
  device: CPU,
  seats: 8,
  minutes: 4 * minutes,
  promptTokens: [400, 4000],
  replyTokens: [6, 44],
} as const;

const CELLS: readonly (readonly [string, Agents])[] = [
  ...AGENTS.map((agents) => [cellOf(agents), { ...base, agents: split(agents) }] as const),
  ['24 seats, 64 agents, seed 2', { ...base, agents: eight(8), seed: 2 }],
  ['24 seats, 64 agents, seed 3', { ...base, agents: eight(8), seed: 3 }],
  ['24 seats, pauses of 8 s', { ...base, agents: eight(8), pauseMs: 8000 }],
  ['24 seats, pauses of 30 s', { ...base, agents: eight(8), pauseMs: 30_000 }],
  ['24 seats, 12 agents, pauses of 30 s', { ...base, agents: split(12), pauseMs: 30_000 }],
  ['24 seats, prompts shortened at turn 12', { ...base, agents: eight(8), compactsAt: 12 }],
  ['24 seats, a session beside each from turn 5 on', { ...base, agents: eight(6), forksAt: 5 }],
  ['24 seats, 36 agents of one account, 4 of each of seven', { ...base, agents: [36, 4, 4, 4, 4, 4, 4, 4] }],
  ['24 seats, 36 agents of one account, 1 of each of seven', { ...base, agents: [36, 1, 1, 1, 1, 1, 1, 1] }],
  ['24 seats, 64 agents, twelve people with chats', { ...base, agents: eight(8), chats: 12 }],
  ...[12, 32, 64].map((agents) => {
    return [`${cellOf(agents)}, single requests`, { ...base, agents: split(agents), singlesPerSecond: 0.1 }] as const;
  }),
  ['24 seats, 24 agents, 200 sessions an hour beside', { ...base, agents: eight(3), openPerHour: 200 }],
  ['8 seats, 64 agents', { ...base, seats: 8, agents: eight(8) }],
  ['8 seats, 64 agents, single requests', { ...base, seats: 8, agents: eight(8), singlesPerSecond: 0.03 }],
  ['8 seats, 64 agents, host cache', { ...base, seats: 8, agents: eight(8), hostTokens: 640_000 }],
  ['CPU, 8 seats, 16 agents, host cache of all', { ...onCpu, agents: eight(2), hostTokens: 200_000 }],
  ['CPU, 8 seats, 64 agents, host cache of a quarter', { ...onCpu, agents: eight(8), hostTokens: 64_000 }],
];

function cellOf(agents: number): string {
  return `${SEATS} seats, ${agents} agents`;
}

/** Agents of eight accounts, as evenly as can be. */
function split(agents: number): number[] {
  return Array.from({ length: 8 }, (_, i) => Math.floor((agents + i) / 8));
}

/** The turns of all accounts but the first, as a share of those that they make where the first has no agents; empty if it has no more than they. */
async function besideFirst(load: Agents, { turnsOf }: AgentFigures): Promise<string> {
  const [first = 0, second = 0] = load.agents;
  if (first <= second) return '';
  const others = (turns: readonly number[]): number => turns.slice(1).reduce((sum, count) => sum + count, 0);
  const alone = await simulate({ ...load, agents: [0, ...load.agents.slice(1)] });
  return (others(turnsOf) / others(alone.turnsOf)).toFixed(2);
}

/** The share of the refused that were told a time that is reserved for them; empty if none was refused. */
function told({ reserved, none }: { readonly reserved: number; readonly none: number }): string {
  return reserved + none === 0 ? '' : (reserved / (reserved + none)).toFixed(2);
}

/** A curve over the agents for each seat, of the cells that differ in nothing else. */
function panel(title: string, unit: string, value: (figures: AgentFigures) => number): Panel {
  const lines = HOW.map(([name]) => ({
    name,
    points: AGENTS.map((agents) => {
      const figures = found.get(`${cellOf(agents)}, ${name}`);
      return { load: Number((agents / SEATS).toFixed(2)), share: figures === undefined ? 0 : value(figures) };
    }),
  }));
  return { title, unit, percent: true, lines };
}

const HOW = [
  ['not kept', 0],
  ['kept', KEEP_MAX_MS],
] as const;
const found = new Map<string, AgentFigures>();
const rows: Row[] = [];
for (const [cell, load] of CELLS.filter(([name]) => name.includes(only))) {
  for (const [how, keepMaxMs] of HOW) {
    const figures = await simulate({ ...load, keepMaxMs });
    found.set(`${cell}, ${how}`, figures);
    const { reused, turnsPerSecond, first, further, sessions, singles, jain, refused, returned, report } = figures;
    const light = [...singles, ...figures.chats];
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
      'singles’ or chats’ p99, s': light.length > 0 ? at(light, 0.99) : '',
      'Jain of turns': jain.toFixed(3),
      'light accounts’ turns, of those alone': await besideFirst({ ...load, keepMaxMs }, figures),
      refused,
      'told a time, of those': told(report.overload.retries),
      'in after Retry-After': Number.isNaN(returned) ? '' : returned.toFixed(2),
      'seats taken': report.sessions.keeps.taken,
    });
    const { refused: reasons, sessions: counts } = report;
    process.stdout.write(`${JSON.stringify({ ...rows.at(-1), turnsOf: figures.turnsOf, counts, reasons })}\n`);
  }
}

if (only === '') {
  const most = Math.max(...[...found.values()].map(({ turnsPerSecond }) => turnsPerSecond));
  await keepFile(
    CHART,
    chart(
      'More agents than seats',
      `${SEATS} seats, times of 8 B weights on a GPU, ${minutes} simulated minutes a point.`,
      [
        panel('Turns a second', `share of the most, ${most.toFixed(2)} a second`, (of) => of.turnsPerSecond / most),
        panel('Prompt tokens reused', 'share of the prompt tokens of all turns', ({ reused }) => reused),
      ],
      'agents for each seat',
    ),
  );
  await keep('sessions', {
    title: 'Agents’ sessions, with seats that are kept for them and without',
    simulated: true,
    about: [
      `![Turns a second and prompt tokens reused against the agents for each seat](${CHART})`,
      `The product's seat queue, and a stand-in engine with times measured of 8 B weights on a GPU (\`CPU\`: of 150 M weights, with a tenth of the tokens), on a simulated clock; ${minutes} minutes (CPU: four times as long, for as many turns) after ten that are not counted. Agents of eight accounts work on one session after the other, each of 20 turns from 4,000 to 40,000 prompt tokens; pauses between turns are 0.3 s mostly, 1 to 10 s for one in ten, longer for one in twenty. \`queue.maxWaitMs\` is 10 s; who is refused returns after Retry-After. Times are from the first try of a request to the end of its reply.`,
      'Told a time: of the refused, since the start, those to whom a time below 59 s was promised; 59 s is the longest Retry-After and promises nothing. In after Retry-After: of the returns at such a time. Jain: of the turns of an account over the seats that max-min fairness gives its agents. Light accounts’ turns: of all accounts but the first, over those that they make where the first has no agents.',
    ],
    rows,
    conclusions: [
      '## Limits',
      '*Long pauses.* A kept seat is idle while its agent pauses: with pauses of 30 s, 24 seats serve at most one turn in 30 s and a turn’s time each, 0.76 a second if all prompts were found, so no rule gets four times the turns of seats that are not kept. A short prompt costs less to compute again than a seat that is idle for 30 s, so its seat is not kept that long. And the one seat that is never kept for long, which does not wait for pauses, makes many of the turns, each with a prompt that is computed. Was tried, and was worse: keeping that seat, too, and all for 1.7 times what their states cost, with which 0.86 of the prompt tokens are reused and as many turns are made, but single requests wait for up to half as long again, and on four seats an account that opens sessions and never continues them takes 28 in 100 of the turns of others.',
      '*Shortened prompts.* Where no seat is kept they cost half as much to compute again as others, so keeping seats gains less; with kept seats the turns a second are those of the other cells.',
      '*Light accounts beside a heavy one.* With four agents each they get their share of three seats: a request of an account with fewer seats than its share, of which few return, is promised one. Without that an agent that waits out a Retry-After is not there when a seat becomes free. With one agent each they have the seat that they ask for, and for up to 48 s after a session also the one that is kept for it; of the heavy account’s seats some are kept for sessions that have ended. So they make more turns for a seat than that, the more the longer seats are kept. Turns take longer than alone, since the device is shared: of four agents each, seven accounts that had all of it alone have 7/8. Was tried, and was worse: promising seats to all accounts below their share, which takes seats of sessions that continue; promising times for more than half of the seats, at which fewer newcomers then get in.',
      '*Newcomers.* Half of the seats that an account gets, or of its share, are promised to newcomers, those that return first. Others are told 59 s: with 64 agents on 24 seats, forty wait for a seat that comes free each nine seconds, and clients do not wait for longer than a minute by themselves. Where no kept seat can be taken at the end of the wait, as often with a host cache, a promised newcomer waits for as long again, before all others; with a host cache it then takes the next seat that would be kept for no longer than that. Was tried, and was worse: only not refusing a newcomer at its time, or promising all seats, with which fewer get in; taking the seat that is idle longest at once, or after half of the wait, or any in the second wait, with which more sessions lose their seats; places for all newcomers in the order in which they came, up to a quarter of an hour ahead, which halves the p99 of first turns and doubles their p50, but more sessions lose their seats, and with a host cache a quarter of the newcomers does not get in; keeping no seat while a promised newcomer waits, or looking for one each second, with fewer turns.',
    ],
  });
}
