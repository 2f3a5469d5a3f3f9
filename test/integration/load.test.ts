/** Many requests at once and one after another, on a real engine: all are answered, and no memory is retained. */
import t from 'tap';
import { LONG, rounds } from '../support/long-form.js';
import { testModel } from '../support/models.js';
import { childrenOf, residentBytes } from '../support/processes.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';

const MIB = 1024 * 1024;

/** The short form does not look at memory: of 400 requests the bodies would be a tenth of a process, which is below the bound. */
const REQUESTS = rounds({ short: 80, long: 2000 });
const WARM_UP = REQUESTS / 4;
const SAMPLE_EVERY = REQUESTS / 40;

/**
 * Growth from the median of the first half of the requests after the warm-up to that of the second half. Measured over
 * 10,000 requests, every process levels off: heaps and caches still grow for a while, here by up to 10 % between the
 * two. Memory retained per request is visible, since the bodies are large: with each body retained once, the sidecar
 * grew by 18 %.
 */
const MAX_GROWTH = 0.15;

/** Heaps that are collected early: garbage that is not collected yet must not count as retained. */
const SMALL_HEAPS = { NODE_OPTIONS: '--max-semi-space-size=1 --max-old-space-size=96' };

const HELLO = [{ role: 'user', content: 'Tell me about the sea, the hills and the weather.' }];

const QUESTIONS = [
  { id: 'refund', type: 'yes_no', question: 'Is a refund asked for?' },
  { id: 'team', type: 'choice', question: 'Which team?', options: [{ name: 'billing' }, { name: 'support' }] },
];

/**
 * Makes a body large without making its prompt long: tools with tool_choice none. Every other one is not parsed inline.
 */
function ballast(i: number): object {
  const description = 'x'.repeat(i % 2 === 0 ? 8 * 1024 : 128 * 1024);
  const tool = {
    type: 'function',
    function: { name: 'none', description, parameters: { type: 'object', properties: {} } },
  };
  return { tools: [tool], tool_choice: 'none' };
}

/** The wait is not tested, so no request may be refused for it, however slow the machine. */
const PATIENT = { maxWaitMs: 3_600_000 };

/** Sends requests 0 to `count` - 1, so many at a time. */
async function drive(count: number, atOnce: number, send: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  const one = async (): Promise<void> => {
    while (next < count) await send(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, one));
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

/** Seats in use and waiting requests, over all models. */
async function held(sidecar: Sidecar): Promise<number[]> {
  return [await sidecar.metric('ra_sidecar_seats_busy'), await sidecar.metric('ra_sidecar_waiting_requests')];
}

/** The sidecar and all of its processes. */
async function processesOf(sidecar: Sidecar): Promise<Map<string, number>> {
  const pid = Number(sidecar.child.pid);
  const host = (lane: string) =>
    childrenOf(pid).find(({ command }) => command.includes(`prompts/host.js ${lane}`))?.pid ?? NaN;
  return new Map([
    ['sidecar', pid],
    ['short lane', host('short')],
    ['long lane', host('long')],
    ['chat engine', sidecar.enginePid(CHAT)],
    ['decision engine', sidecar.enginePid(DECIDE)],
  ]);
}

t.test('one sidecar under load', async (t) => {
  const sidecar = await Sidecar.start(t, {
    file: await testModel(),
    config: { queue: PATIENT },
    environment: SMALL_HEAPS,
  });

  t.test(`${REQUESTS} requests are answered, and ${LONG ? 'memory and ' : ''}seats are as before`, async (t) => {
    // The first long body starts the host for such bodies.
    await (await sidecar.chat({ messages: HELLO, max_tokens: 4, ...ballast(1) })).arrayBuffer();
    const watched = await processesOf(sidecar);
    const samples = new Map<string, number[]>([...watched.keys()].map((name) => [name, []]));
    const statuses = new Map<number, number>();
    let answered = 0;
    await drive(REQUESTS, 16, async (i) => {
      const response =
        i % 4 === 3
          ? await sidecar.post('/decisions', { model: DECIDE, input: `Order ${i} came twice.`, questions: QUESTIONS })
          : await sidecar.chat({ messages: HELLO, stream: i % 4 === 1, max_tokens: 4, seed: i, ...ballast(i) });
      await response.arrayBuffer();
      statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
      if (++answered % SAMPLE_EVERY !== 0) return;
      for (const [name, pid] of watched) samples.get(name)?.push(residentBytes(pid));
    });
    t.same([...statuses], [[200, REQUESTS]]);
    t.same(await held(sidecar), [0, 0]);
    t.same(await processesOf(sidecar), watched, 'nothing was restarted');
    if (!LONG) return;

    for (const [name, sizes] of samples) {
      const warm = sizes.slice(WARM_UP / SAMPLE_EVERY);
      const before = median(warm.slice(0, warm.length / 2));
      const after = median(warm.slice(warm.length / 2));
      t.comment(`${name}: ${sizes.map((size) => Math.round(size / MIB)).join(' ')} MiB`);
      t.ok(after < before * (1 + MAX_GROWTH), `${name}: ${before} bytes after the warm-up, ${after} at the end`);
    }
  });
});
