/** Over HTTP: the usage in the answer, the closing record in the spool and the price agree. */
import t from 'tap';
import { errorOf } from '../support/error-answer.js';
import { ACME, chatBody, decisionBody, FakeIdentity, systemOneBody } from '../support/in-process.js';
import { frames } from '../support/open-stream.js';
import {
  DECISION,
  INPUT,
  OUTPUT,
  agrees,
  chatPrice,
  lastClose,
  startPriced as start,
  usageOf,
  type Usage,
} from '../support/priced-sidecar.js';
import { eventually } from '../support/processes.js';
import { REUSED_TOKENS } from '../support/stub-script.js';

const CHAT = '/v1/chat/completions';
t.test('the usage in the answer is what is billed', async (t) => {
  const sidecar = await start(t, '1000');

  await t.test('a reused prefix, at its own rate', async (t) => {
    const usage = usageOf(await sidecar.post(CHAT, chatBody('chat', 'reused')));
    t.equal(usage.prompt_tokens_details?.cached_tokens, REUSED_TOKENS);
    agrees(t, lastClose(sidecar), usage, chatPrice(usage, REUSED_TOKENS));
  });

  await t.test('three questions: the input three times', async (t) => {
    const question = (id: string): object => ({ id, type: 'yes_no', question: 'Is it wet?' });
    const ask = async (...ids: string[]): Promise<Usage> =>
      usageOf(await sidecar.post('/v1/decisions', decisionBody('decide', { questions: ids.map(question) })));
    const one = await ask('a');
    const three = await ask('a', 'b', 'c');
    t.equal(three.prompt_tokens, 3 * one.prompt_tokens);
    agrees(t, lastClose(sidecar), three, three.prompt_tokens * DECISION);
  });

  await t.test('the same in the other shape', async (t) => {
    const { body } = await sidecar.post('/v1/systemone', systemOneBody('decide'));
    const { usage } = JSON.parse(body) as { usage: { input_tokens: number; output_tokens: number } };
    const same = { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens };
    agrees(t, lastClose(sidecar), same, usage.input_tokens * DECISION);
  });

  t.equal(await sidecar.metric('ra_sidecar_credit_reservations'), 0, 'no reservation is left');
});

t.test(
  'a whole reply on a lent seat that another request needs begins again, and its first attempt costs nothing',
  async (t) => {
    const sidecar = await start(t, '1000', { models: [{ id: 'chat', kind: 'chat', seats: 1 }] });
    sidecar.identity.answers.set('Bearer batch', { ...ACME, weight: 1 });
    const headers = { Authorization: 'Bearer batch', 'x-request-id': 'lent' };
    // It holds its seat for two seconds.
    const lent = await sidecar.begin(CHAT, chatBody('chat', 'paced', { max_tokens: 400 }), headers);
    await sidecar.until('ra_sidecar_seats_lent{model="chat"}', 1);
    const running = (): Promise<number> => sidecar.metric('ra_sidecar_kv_tokens{model="chat",use="running"}');
    await eventually('its engine reports its tokens', async () => (await running()) > 0);
    t.equal(await sidecar.metric('ra_sidecar_seats_busy{model="chat"}'), 0);
    t.equal((await sidecar.post(CHAT, chatBody('chat', 'echo'))).status, 200);
    const answer = await lent.response();
    t.equal(answer.status, 200);
    const { choices } = JSON.parse(answer.body) as { choices: { message: { content: string } }[] };
    t.equal(choices[0]?.message.content, 'paced', 'nothing of the first attempt');
    const usage = usageOf(answer);
    agrees(t, lastClose(sidecar), usage, chatPrice(usage));
    const own = sidecar.spool.records.filter(({ requestId, kind }) => requestId === 'lent' && kind !== 'progress');
    t.match(own, [
      { kind: 'open' },
      {
        kind: 'close',
        outcome: 'refused',
        promptTokens: usage.prompt_tokens,
        completionTokens: 1,
        price: { picodollars: '0' },
        prepaid: true,
      },
      { kind: 'open' },
      { kind: 'close', outcome: 'done' },
    ]);
    t.equal(own[0]?.id, own[1]?.id);
    t.not(own[1]?.id, own[3]?.id, 'each attempt is billed by itself');
    t.equal(await sidecar.metric('ra_sidecar_lent_seats_ended{model="chat",end="recalled"}'), 1);
    t.equal(await sidecar.metric('ra_sidecar_credit_reservations'), 0);
  },
);

t.test('credit is checked last', async (t) => {
  const sidecar = await start(t, '0', {
    models: [
      { id: 'chat', kind: 'chat', seats: 1 },
      { id: 'decide', kind: 'decision', seats: 1 },
    ],
    config: { queue: { waitingPerSeat: 0 } },
    identity: vouching(),
  });
  const code = async (body: object): Promise<string | null> => errorOf(await sidecar.post(CHAT, body)).code;
  const broken = {
    role: 'assistant',
    tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{' } }],
  };
  const hello = { role: 'user', content: 'Hello.' };
  t.equal(await code(chatBody('chat', 'echo')), 'insufficient_credit');
  t.equal(await code(chatBody('chat', 'echo', { max_tokens: 9999 })), 'bad_request', 'token bound of the reply');
  t.equal(
    await code(chatBody('chat', 'echo', { messages: [{ role: 'user', content: 'word '.repeat(3000) }] })),
    'bad_request',
    'token bound of the prompt',
  );
  t.equal(await code(chatBody('chat', 'echo', { messages: [hello, broken] })), 'unprocessable', 'template');
  const long = { input: 'word '.repeat(3000) };
  for (const [path, body, other] of [
    ['/v1/decisions', decisionBody, long],
    ['/v1/systemone', systemOneBody, { state: long.input }],
  ] as const) {
    t.equal(errorOf(await sidecar.post(path, body('decide'))).code, 'insufficient_credit', path);
    t.equal(errorOf(await sidecar.post(path, body('decide', other))).code, 'bad_request', path);
  }
  const running = await sidecar.begin(CHAT, chatBody('chat', 'hold'), { Authorization: 'Bearer vouched' });
  await sidecar.until('ra_sidecar_seats_busy{model="chat"}', 1);
  t.equal(await code(chatBody('chat', 'echo')), 'capacity_exceeded', 'place');
  running.close();
  await sidecar.until('ra_sidecar_seats_busy{model="chat"}', 0);
  t.equal(await code(chatBody('chat', 'echo')), 'insufficient_credit');
  const { spool } = sidecar;
  t.ok(
    spool.records.every(({ prepaid }) => prepaid === undefined),
    'no record of these requests exists',
  );
});

function vouching(): FakeIdentity {
  const identity = new FakeIdentity();
  identity.answers.set('Bearer vouched', { ...ACME, vouched: true });
  return identity;
}

t.test('a tier that the key may use is served, named and charged; any other is the default one', async (t) => {
  const config = { contract: 'compatible' };
  const models = [
    { id: 'chat', kind: 'chat', seats: 4 },
    { id: 'kept', kind: 'chat', seats: 1 },
  ] as const;
  const sidecar = await start(t, '1000', { models, config });
  const tiers = new Set(['flex', 'priority'] as const);
  sidecar.identity.answers.set('Bearer tiers', { ...ACME, tiers });
  sidecar.identity.answers.set('Bearer flex', { ...ACME, tiers: new Set(['flex'] as const) });
  const ask = (tier: string, { key = 'tiers', model = 'chat', ...more }: Record<string, unknown> = {}) =>
    sidecar.post(CHAT, chatBody(String(model), 'echo', { service_tier: tier, ...more }), {
      Authorization: `Bearer ${String(key)}`,
    });
  const named = ({ body }: { readonly body: string }): unknown =>
    (JSON.parse(body) as { service_tier: unknown }).service_tier;

  await t.test('whole', async (t) => {
    for (const [tier, input, output] of [
      ['flex', INPUT / 2, OUTPUT / 2],
      ['priority', INPUT, 2 * OUTPUT],
    ] as const) {
      const answer = await ask(tier);
      t.equal(named(answer), tier);
      const usage = usageOf(answer);
      const cost = usage.prompt_tokens * input + usage.completion_tokens * output;
      agrees(t, lastClose(sidecar), usage, cost);
      t.match(lastClose(sidecar), { tier, route: 'chat' });
      t.match(JSON.parse(answer.body), { usage: { cost: cost / 1e12 } });
    }
    const page = await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/admission`);
    const { models: shown } = (await page.json()) as { models: { model: string; lent: { ends: { ended: number } } }[] };
    t.match(
      shown.find(({ model }) => model === 'chat'),
      { lent: { ends: { ended: 1 } } },
      'flex used a lent seat',
    );
  });

  await t.test('streamed: each chunk names it', async (t) => {
    const answer = await ask('flex', { stream: true, stream_options: { include_usage: true } });
    const chunks = frames(answer).slice(0, -1);
    t.ok(chunks.length > 2 && chunks.every((chunk) => chunk.includes(',"service_tier":"flex","choices":[')));
    const usage = usageOf({ body: chunks.at(-1) ?? '' });
    agrees(t, lastClose(sidecar), usage, chatPrice(usage) / 2);
  });

  await t.test('the default one', async (t) => {
    const refused = [
      await ask('auto'),
      await ask('scale'),
      await ask('flex', { key: 'good' }),
      await ask('priority', { key: 'flex' }),
      await ask('flex', { model: 'kept' }),
    ];
    t.same(
      refused.map(named),
      refused.map(() => 'default'),
    );
    for (const close of sidecar.spool.records.filter(({ kind }) => kind === 'close').slice(-refused.length)) {
      t.notOk('tier' in close);
      t.equal(close.price?.picodollars, String(chatPrice(usageOf(refused[0] ?? { body: '' }))));
    }
    t.notMatch(
      (await sidecar.post(CHAT, chatBody('chat', 'echo'))).body,
      /service_tier/,
      'of a request that asks for none',
    );
  });

  await t.test('in the other two APIs', async (t) => {
    const headers = { Authorization: 'Bearer tiers' };
    const response = { model: 'chat', input: 'echo', service_tier: 'priority' };
    t.equal(named(await sidecar.post('/v1/responses', response, headers)), 'priority');
    t.match(lastClose(sidecar), { tier: 'priority' });
    const streamed = await sidecar.post('/v1/responses', { ...response, stream: true }, headers);
    t.equal(streamed.body.split('"service_tier":"priority"').length, 4, 'created, in progress, completed');
    const messages = [{ role: 'user', content: 'echo' }];
    for (const [tier, name] of [
      ['flex', 'batch'],
      ['priority', 'priority'],
      ['standard_only', 'standard'],
    ] as const) {
      const body = { model: 'chat', max_tokens: 8, messages, service_tier: tier };
      const whole = await sidecar.post('/v1/messages', body, headers);
      t.match(JSON.parse(whole.body), { usage: { service_tier: name } });
      const stream = await sidecar.post('/v1/messages', { ...body, stream: true }, headers);
      t.match(stream.body, new RegExp(`message_start.*"service_tier":"${name}"`));
    }
  });
});
