/** Several engine processes of one model behind one queue, on real engines. */
import { availableParallelism } from 'node:os';
import t from 'tap';
import { embeddedTestModel } from '../support/models.js';
import { ENDLESS, OpenStream } from '../support/open-stream.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const UNEQUAL = 'unequal';
const SHORT_CONTEXT = 512;
/** A reply of half of it is running until its caller leaves. */
const LONG_CONTEXT = 16_384;

interface Answer {
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
}

const file = await embeddedTestModel();
const base = { kind: 'chat', file, gpu: false, threads: 1 };
const sidecar = await Sidecar.start(t, {
  config: {
    models: [
      { ...base, id: CHAT, seats: 2, contextPerSeat: 4096, prefixReuse: 'any', replicas: 2 },
      {
        ...base,
        id: UNEQUAL,
        replicas: [
          { seats: 1, contextPerSeat: SHORT_CONTEXT },
          { seats: 1, contextPerSeat: LONG_CONTEXT },
        ],
      },
    ],
  },
});

async function ask(body: Readonly<Record<string, unknown>>): Promise<Answer> {
  const response = await sidecar.post('/chat/completions', body);
  t.equal(response.status, 200);
  return (await response.json()) as Answer;
}

async function replicasOf(model: string): Promise<unknown> {
  const page = await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/admission`);
  const { models } = (await page.json()) as { models: { model: string; replicas: unknown }[] };
  return models.find((one) => one.model === model)?.replicas;
}

t.test('requests at the same time are spread over the replicas', async (t) => {
  const streams = await Promise.all([1, 2, 3, 4].map(() => OpenStream.begin(sidecar)));
  t.match(await replicasOf(CHAT), [
    { seats: 2, busy: 2, up: true },
    { seats: 2, busy: 2, up: true },
  ]);
  for (const replica of ['0', '1']) {
    t.equal(await sidecar.metric('ra_sidecar_replica_seats_busy', { model: CHAT, replica }), 2);
    t.equal(await sidecar.metric('ra_sidecar_replica_state', { model: CHAT, replica, state: 'ready' }), 1);
  }
  t.equal(await sidecar.metric('ra_sidecar_seats', { model: CHAT }), 4);
  for (const stream of streams) stream.leave();
  await sidecar.reaches('ra_sidecar_seats_busy', 0);
});

t.test('a conversation continues on the replica that has its past turns', async (t) => {
  const talk = (who: number, turns: number): object[] => [
    { role: 'system', content: `You serve caller ${who}. ${`What ${who} wants is known. `.repeat(30)}` },
    ...Array.from({ length: turns }, (_, turn) => [
      { role: 'user', content: `This is turn ${turn} of caller ${who}.` },
      { role: 'assistant', content: 'Yes.' },
    ])
      .flat()
      .slice(0, -1),
  ];
  let [prompts, cached] = [0, 0];
  const lengths = new Map<number, number>();
  const turn = async (who: number, count: number): Promise<void> => {
    const { usage } = await ask({ ...ENDLESS, messages: talk(who, count), max_tokens: 2 });
    prompts += lengths.get(who) ?? 0;
    cached += lengths.has(who) ? usage.prompt_tokens_details.cached_tokens : 0;
    lengths.set(who, usage.prompt_tokens);
  };
  for (const count of [1, 2, 3, 4]) {
    // In another order each time, so that neither the order nor the load explains the result.
    const order = [0, 1, 2, 3].map((at) => (at + count) % 4);
    await Promise.all((count % 2 === 0 ? order.reverse() : order).map((who) => turn(who, count)));
  }
  t.ok(cached > 0.8 * prompts, `${cached} of ${prompts} tokens of past turns were reused`);
});

t.test('unequal replicas: a request’s needs decide', async (t) => {
  const whole = await ask({ ...ENDLESS, model: UNEQUAL });
  const { prompt_tokens: prompt, completion_tokens: completion } = whole.usage;
  t.equal(prompt + completion, SHORT_CONTEXT, 'without a limit the short seats are sufficient');
  // Both run at once: the long request neither waits for the short seat nor takes it.
  const short = await OpenStream.begin(sidecar, { ...ENDLESS, model: UNEQUAL, max_tokens: 400 });
  const long = await OpenStream.begin(sidecar, { ...ENDLESS, model: UNEQUAL, max_tokens: LONG_CONTEXT / 2 });
  t.match(await replicasOf(UNEQUAL), [{ seats: 1 }, { seats: 1, busy: 1 }]);
  short.leave();
  long.leave();
  const over = await sidecar.post('/chat/completions', { ...ENDLESS, model: UNEQUAL, max_tokens: LONG_CONTEXT });
  t.equal(over.status, 400, 'longer than the longest');
});

t.test('a missing device ends the start with one line', async (t) => {
  const models = [{ ...base, gpu: 'auto', id: CHAT, replicas: [{ devices: 97 }] }];
  const failed = await Sidecar.launch(t, { config: { models } });
  t.match(await failed.exited(), { code: 1 });
  t.match(failed.printed, new RegExp(`model ${CHAT} cannot be served: replica 0 \\(device 97\\) is not there: .+`));
});

t.test('a replica with wrong settings ends the start, and the line names it', async (t) => {
  const models = [
    { ...base, id: CHAT, seats: 1, contextPerSeat: 512, replicas: [{}, { cores: `${availableParallelism() + 900}` }] },
  ];
  const failed = await Sidecar.launch(t, { config: { models } });
  t.match(await failed.exited(), { code: 1 });
  t.match(failed.printed, /cannot be served from .+: replica 1: /);
});
