/** One of four replicas, drawn at random, is killed again and again under load. On stand-in engines, whose speed no other work takes. */
import t from 'tap';
import { seeded } from '../../bench/support/load.js';
import { rounds } from '../support/long-form.js';
import { chatBody, InProcess, type Line } from '../support/in-process.js';
import { OpenLoad } from '../support/open-load.js';
import { eventually, isRunning } from '../support/processes.js';

const REPLICAS = 4;
const SEATS = 8;
const TOKENS = 40;
/** Of one reply, ms: its tokens come every 12.5 ms. */
const REPLY_MS = 500;
const KILLS = rounds({ short: 3, long: 24 });
const KILL_EVERY_MS = rounds({ short: 1000, long: 5000 });
/** What three replicas can serve at most: replies a second. */
const OFFERED = (3 * SEATS) / (REPLY_MS / 1000);
/** Of what is offered; in the short form more is killed in less time. */
const GOODPUT = rounds({ short: 80, long: 90 }) / 100;

t.setTimeout(300_000);

t.test('no request is lost that had not begun, and each that had ends with one error', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [{ id: 'm', kind: 'chat', seats: SEATS, replicas: REPLICAS }],
    config: {
      queue: { maxWaitMs: 60_000, waitingPerSeat: 100 },
      engine: { backoffMinMs: 10, backoffMaxMs: 100 },
      development: { validateAnswers: true, learnedQueue: false },
    },
  });
  const forked = (replica: number): Line | undefined =>
    sidecar.lines.findLast((line) => line.event === 'engine forked' && line['replica'] === replica);
  const random = seeded(7);
  const load = new OpenLoad(OFFERED, async () => {
    const { status, body } = await sidecar.post('/v1/chat/completions', {
      ...chatBody('m', 'steady', { max_tokens: TOKENS, stream: true }),
    });
    return { status, frames: body.split('\n\n').filter((frame) => frame.startsWith('data: ')) };
  });
  for (let kill = 0; kill < KILLS; kill += 1) {
    await new Promise((later) => setTimeout(later, KILL_EVERY_MS));
    const replica = Math.floor(random() * REPLICAS);
    const pid = (): number => Number(forked(replica)?.['pid']);
    await eventually('it runs again', () => isRunning(pid()));
    process.kill(pid(), 'SIGKILL');
  }
  const answers = await load.end();
  const lost = sidecar.lines.filter(({ event }) => event === 'engine lost');
  const running = lost.reduce((sum, { count }) => sum + Number(count), 0);
  const whole = answers.filter(({ frames }) => frames.at(-1) === 'data: [DONE]');
  const cut = answers.filter(({ frames }) => frames.at(-1) !== 'data: [DONE]');
  t.comment(`${answers.length} requests, ${cut.length} cut of ${running} that ran on ${lost.length} lost engines`);
  t.ok(lost.length >= 1 && lost.length <= KILLS);
  t.ok(cut.length <= running, 'only those that an engine had');
  const errors = (frames: readonly string[]): number => frames.filter((frame) => frame.includes('"error"')).length;
  t.same(
    cut.filter(({ status, frames }) => status === 200 && errors(frames) !== 1),
    [],
    'one error frame each',
  );
  t.same(
    whole.filter(({ status, frames }) => status !== 200 || errors(frames) > 0),
    [],
    'and none elsewhere',
  );
  const texts = (frames: readonly string[]): number => frames.filter((frame) => frame.includes(' steady')).length;
  t.same(
    whole.filter(({ frames }) => texts(frames) !== TOKENS),
    [],
    'nothing twice',
  );
  // One that had begun may not have had a frame: it is answered with an ordinary error.
  t.same(
    cut.filter(({ status }) => status !== 200 && status !== 502),
    [],
  );
  t.ok(whole.length >= GOODPUT * answers.length, `${whole.length} of ${answers.length}`);
});
