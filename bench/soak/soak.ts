/**
 * A sidecar for a long time at 0.8 of its capacity, with callers that disconnect and an engine that is killed
 * repeatedly: what grows, what is left over, and whether the usage adds up. `node dist/bench/soak/soak.js [minutes]
 * [seconds between kills]`; exits with 1 if a value is wrong.
 */
import { Agent } from 'node:http';
import { join } from 'node:path';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { runCli } from '../../test/support/cli.js';
import { OpenLoad } from '../../test/support/open-load.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { seeded } from '../support/load.js';
import { endlessEmbedded } from '../support/models.js';
import { keep } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { call, type Answer } from './caller.js';
import { Findings } from './findings.js';
import { compare, priceList, type Close } from './sums.js';
import { grown, Watch, type Role, type Sample } from './watch.js';
import { Teardowns } from '../support/teardowns.js';

const MINUTES = Number(process.argv[2] ?? 30);
const KILL_EVERY_S = Number(process.argv[3] ?? 180);

const SEATS = 8;
const CONTEXT = 1024;
const SHARE = 0.8;
const LEAVING = 0.05;
/** Tokens of a reply and words of a prompt, from and to. */
const TOKENS = [16, 192] as const;
const WORDS = [5, 200] as const;
const SAMPLE_MS = 5000;
/** The closed loop that measures the capacity: callers, and seconds of each of two runs, the first to warm up. */
const CLOSED = { callers: SEATS, seconds: 15 };
/** Memory growth during the warm-up does not count: this share of the samples is left out. */
const WARM_SHARE = 0.25;
/**
 * The most that memory may grow over the samples after that, MiB. V8 keeps some tens of MiB more or less between two
 * full collections however long a run is; a leak of 8 KiB a request exceeds it within half an hour at three requests a
 * second, a smaller one in a longer run.
 */
const MOST_GROWN_MIB = 32;
/** `bodies.inlineBytes`: longer ones are read by the long prompt host. */
const INLINE_BYTES = 16 * 1024;
/** Bodies that are, and how long they are, bytes. */
const LONG_SHARE = 0.02;
const LONG_BYTES = 256 * 1024;
const MIB = 1024 * 1024;
/** Refused while the engine restarts; refused by the queue; running when the engine was killed. */
const EXPECTED: ReadonlySet<string> = new Set(['cold', 'capacity_exceeded', 'bad_gateway']);

const dir = await mkdtemp(join(tmpdir(), 'ra-soak-'));
const teardowns = new Teardowns();
teardowns.teardown(() => rm(dir, { recursive: true, force: true }));
const file = await endlessEmbedded();
const prices = join(dir, 'prices.json');
await writeFile(prices, JSON.stringify(priceList(CHAT)));
const sidecar = await Sidecar.start(teardowns, {
  config: {
    dataDir: dir,
    models: [{ id: CHAT, kind: 'chat', file, seats: SEATS, contextPerSeat: CONTEXT, threads: 1, gpu: false }],
    pricing: { file: prices },
    bodies: { inlineBytes: INLINE_BYTES },
    development: { validateAnswers: false },
  },
});
const agent = new Agent({ keepAlive: true });
const random = seeded(7);
/** The recent durations of whole answers, ms: callers disconnect within these. */
let usualMs = 1000;
let longBodies = 0;

const answers: Answer[] = [];
try {
  await closedLoop();
  const capacity = await closedLoop();
  process.stdout.write(`replies a second at most: ${capacity.toFixed(2)}\n`);
  const restsBefore = await rests();
  const watch = new Watch(sidecar.pid, SAMPLE_MS);
  let kills = 0;
  const killer = setInterval(() => {
    process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
    kills += 1;
  }, KILL_EVERY_S * 1000);
  const load = new OpenLoad(SHARE * capacity, (i) => send(`soak-${i}`, random() < LEAVING));
  await new Promise((later) => setTimeout(later, MINUTES * 60_000));
  clearInterval(killer);
  const loaded = await load.end();
  answers.push(...loaded);
  const restsAfter = await rests();
  watch.end();
  const restarts = await sidecar.metric('ra_sidecar_engine_restarts_total');
  sidecar.child.kill('SIGTERM');
  const { code } = await sidecar.exited();
  await report({ capacity, loaded, samples: watch.samples, kills, restarts, restsBefore, restsAfter, code });
} finally {
  agent.destroy();
  await teardowns.run();
}
process.exit(process.exitCode ?? 0);

interface Rests {
  readonly busy: number;
  readonly waiting: number;
  readonly files: number;
}

interface SoakResult {
  readonly capacity: number;
  readonly loaded: readonly Answer[];
  readonly samples: readonly Sample[];
  readonly kills: number;
  readonly restarts: number;
  readonly restsBefore: Rests;
  readonly restsAfter: Rests;
  readonly code: number | null;
}

/** Measured while idle: all callers' connections are closed first. */
async function rests(): Promise<Rests> {
  agent.destroy();
  for (const name of ['ra_sidecar_seats_busy', 'ra_sidecar_waiting_requests']) await sidecar.reaches(name, 0);
  // The asking connection is among those that the sidecar closes after ten idle seconds.
  const watch = new Watch(sidecar.pid, SAMPLE_MS);
  await new Promise((later) => setTimeout(later, 12_000));
  watch.end();
  return {
    busy: await sidecar.metric('ra_sidecar_seats_busy'),
    waiting: await sidecar.metric('ra_sidecar_waiting_requests'),
    files: watch.samples.at(-1)?.files.sidecar ?? NaN,
  };
}

async function send(id: string, leaves: boolean): Promise<Answer> {
  const between = ([from, to]: readonly [number, number]): number => from + Math.floor(random() * (to - from));
  const words = Array.from({ length: between(WORDS) }, (_, i) => `word${i % 10}`).join(' ');
  const long = random() < LONG_SHARE;
  if (long) longBodies += 1;
  const answer = await call({
    agent,
    port: sidecar.port,
    key: sidecar.key,
    id,
    stream: random() < 0.7,
    body: { model: CHAT, max_tokens: between(TOKENS), messages: [{ role: 'user', content: `${id} ${words}` }] },
    ...(long && { bytes: LONG_BYTES }),
    ...(leaves && { leavesAfterMs: random() * usualMs }),
  });
  if (answer.end === 'whole') usualMs = 0.95 * usualMs + 0.05 * answer.durationMs;
  return answer;
}

/** Whole replies a second of callers who each send when their last one ended. */
async function closedLoop(): Promise<number> {
  const from = performance.now();
  const until = from + CLOSED.seconds * 1000;
  const start = answers.length;
  const caller = async (name: number): Promise<void> => {
    for (let i = 0; performance.now() < until; i++) {
      answers.push(await send(`closed-${Math.round(from)}-${name}-${i}`, false));
    }
  };
  await Promise.all(Array.from({ length: CLOSED.callers }, (_, name) => caller(name)));
  return (answers.length - start) / ((performance.now() - from) / 1000);
}

async function report({
  capacity,
  loaded,
  samples,
  kills,
  restarts,
  restsBefore,
  restsAfter,
  code,
}: SoakResult): Promise<void> {
  const closes = await exported();
  const sums = compare(answers, closes);
  const ended = (end: Answer['end']): number => loaded.filter((answer) => answer.end === end).length;
  const wholes = loaded.filter(({ end }) => end === 'whole').map(({ durationMs }) => durationMs);
  const most = (role: Role): number => Math.max(...samples.map(({ bytes }) => bytes[role] ?? 0)) / MIB;
  const usual = (role: Role, from: number): number => {
    const part = samples.slice(Math.floor(samples.length * from), Math.floor(samples.length * (from + 0.25)));
    return median(part.flatMap(({ bytes }) => bytes[role] ?? [])) / MIB;
  };
  const files = samples.map((sample) => sample.files.sidecar ?? 0);
  const findings = new Findings();
  findings.is('requests', loaded.length);
  findings.is('whole', ended('whole'));
  findings.is('left by their caller', ended('left'));
  for (const code of new Set(loaded.flatMap(({ code: one }) => one ?? []))) {
    const of = (end: Answer['end']): number => loaded.filter((one) => one.end === end && one.code === code).length;
    findings.is(`answered with ${code}`, of('refused'), EXPECTED.has(code) ? undefined : 0);
    findings.is(`streams cut with ${code}`, of('cut'), code === 'bad_gateway' ? undefined : 0);
  }
  findings.is('ended in any other way', ended('broken'), 0);
  findings.is('whole, median ms', quantile(wholes, 0.5));
  findings.is('whole, p99 ms', quantile(wholes, 0.99));
  findings.is('bodies for the long prompt host, warm-up included', longBodies);
  findings.is('engines killed', kills);
  findings.is('engines started again', restarts, kills);
  for (const role of ['sidecar', 'short prompt host', 'long prompt host'] as const) {
    findings.is(`${role}: median of the second quarter, MiB`, usual(role, 0.25));
    findings.is(`${role}: median of the last quarter, MiB`, usual(role, 0.75));
    findings.is(`${role}: at most, MiB`, most(role));
    findings.atMost(`${role}: grew, MiB`, grown(samples, role, WARM_SHARE) / MIB, MOST_GROWN_MIB);
  }
  findings.is('engine: at most, MiB', most('engine'));
  findings.is('sidecar’s open files: before', restsBefore.files);
  findings.is('sidecar’s open files: most under load', Math.max(...files));
  findings.is('sidecar’s open files: after', restsAfter.files, restsBefore.files);
  findings.is('seats taken after', restsAfter.busy, 0);
  findings.is('requests waiting after', restsAfter.waiting, 0);
  findings.is('whole replies by the usage reported to callers, picodollars', sums.reported);
  findings.is('the same as billed, picodollars', sums.billed, sums.reported);
  findings.is(
    'requests closed twice, and whole replies billed differently from their reported usage',
    sums.different,
    0,
  );
  findings.is('replies cut or left, as billed, picodollars', sums.billedOthers);
  findings.is('requests answered with an error that were billed', sums.billedForNothing, 0);
  findings.is('closes of requests that no caller sent', sums.strange, 0);
  findings.is('exit code after SIGTERM', code ?? NaN, 0);
  await keep('soak', {
    title: 'Soak',
    about: [
      `${MINUTES} minutes; the embedded model, ${SEATS} seats, one compute thread; Poisson arrivals at ${SHARE} of the ${capacity.toFixed(2)} replies a second that ${CLOSED.callers} callers get in a closed loop; ${TOKENS.join(' to ')} tokens a reply, 7 of 10 streamed; ${LONG_SHARE * 100} % of the bodies have ${LONG_BYTES / 1024} KiB, most of it blanks; ${LEAVING * 100} % of the callers leave at a random moment of the time that replies usually take; the engine is killed (SIGKILL) every ${KILL_EVERY_S} s.`,
      `Memory is what is resident, looked at every ${SAMPLE_MS / 1000} s; growth is that of the line nearest to the samples after the first ${WARM_SHARE * 100} %, from the first of these to the last; the engine's is left out, for it is killed. Open files are counted when nobody has been connected for 12 s. Usage is what \`ra-sidecar usage export\` writes after the sidecar ended, beside the \`usage\` that callers got.`,
    ],
    rows: findings.rows,
    conclusions: [findings.conclusion],
    failed: findings.wrong > 0,
  });
  if (findings.wrong > 0) process.exitCode = 1;
}

/** Closes of the spool, which is no longer written. */
async function exported(): Promise<Close[]> {
  const { code, stdout, stderr } = await runCli(['usage', 'export'], { RA_DATA_DIR: dir });
  if (code !== 0) throw new Error(`usage export ended with ${String(code)}: ${stderr}`);
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Close);
}
