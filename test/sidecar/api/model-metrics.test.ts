/** The metrics of requests to models, recorded by the handlers on a clock that the test advances. */
import t from 'tap';
import { BilledHarness } from '../../support/billed-harness.js';

const GRANT = 10n ** 12n;

/** A sample of the page by its name and the labels that it must have; undefined: there is none. */
async function sample(harness: BilledHarness, name: string, ...labels: string[]): Promise<number | undefined> {
  const { text } = await harness.metrics.render();
  const line = text
    .split('\n')
    .find((each) => each.startsWith(`${name}{`) && labels.every((label) => each.includes(label)));
  return line === undefined ? undefined : Number(line.slice(line.lastIndexOf(' ') + 1));
}

t.test('a reply: time to first token, gaps, time by token, tokens', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask();
  const job = await harness.chatEngine.generation(0);
  harness.clock.advance(40);
  job.started(4).pieces('a');
  harness.clock.advance(10);
  job.pieces('b');
  harness.clock.advance(30);
  job.pieces('c');
  harness.clock.advance(2);
  job.finished().done();
  t.equal(await asked.over, 200);
  const about = ['operation_name="chat"', 'request_model="chat"', 'response_model="chat"'];
  t.equal(await sample(harness, 'gen_ai_server_time_to_first_token_seconds_sum', ...about), 0.04);
  t.equal(await sample(harness, 'gen_ai_server_time_per_output_token_seconds_sum', ...about), 0.021, '42 ms, 2 tokens');
  t.equal(await sample(harness, 'gen_ai_server_request_duration_seconds_sum', ...about), 0.082);
  t.equal(await sample(harness, 'ra_sidecar_inter_token_seconds_sum'), 0.04);
  t.equal(await sample(harness, 'ra_sidecar_inter_token_seconds_count'), 2);
  t.equal(await sample(harness, 'gen_ai_client_token_usage_sum', ...about, '"input"'), 10);
  t.equal(await sample(harness, 'gen_ai_client_token_usage_sum', ...about, '"output"'), 3);
  t.equal(await sample(harness, 'ra_sidecar_cached_tokens_total'), 4);
});

t.test('two replies of one request are timed separately, and their tokens added', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask({ n: 2 });
  const job = await harness.chatEngine.generation(0);
  job.started().pieces('a');
  harness.clock.advance(10);
  job.pieces('b').finished(0);
  harness.clock.advance(1000);
  job.finished(1).done();
  t.equal(await asked.over, 200);
  t.equal(await sample(harness, 'gen_ai_server_time_per_output_token_seconds_count'), 1, 'one had no piece at all');
  t.equal(await sample(harness, 'ra_sidecar_inter_token_seconds_sum'), 0.01, 'the time between them is no gap');
  t.equal(await sample(harness, 'gen_ai_client_token_usage_sum', '"output"'), 2);
});

t.test('a request that was refused, that failed or whose caller disconnected has its error', async (t) => {
  const harness = new BilledHarness(GRANT);
  t.equal(await harness.ask({ maxTokens: 5000 }).over, 'bad_request');
  const failing = harness.ask();
  (await harness.chatEngine.generation(0)).started().failed('failed');
  await failing.over;
  const left = harness.ask();
  (await harness.chatEngine.generation(1)).started();
  left.leave();
  await left.over;
  for (const code of ['bad_request', 'bad_gateway', 'request_cancelled'])
    t.equal(await sample(harness, 'gen_ai_server_request_duration_seconds_count', `error_type="${code}"`), 1, code);
  t.equal(
    await sample(harness, 'gen_ai_server_time_per_output_token_seconds_count'),
    undefined,
    'of whole replies only',
  );
  t.equal(await sample(harness, 'ra_sidecar_cancels_total', 'phase="prefilling"'), 1);
});

t.test('decisions count their input once a question, whether they end well or are cancelled', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask({ route: 'decisions', questions: 3 });
  const job = (await harness.decisionEngine.scoring(0)).started(5);
  for (const question of [0, 1, 2]) job.answer(question, [0.5, 0.5]);
  job.done();
  t.equal(await asked.over, 200);
  const input = (): Promise<number | undefined> =>
    sample(harness, 'gen_ai_client_token_usage_sum', 'operation_name="decisions"', '"decide"', '"input"');
  t.equal(await input(), 36);
  const left = harness.ask({ route: 'decisions', questions: 3 });
  (await harness.decisionEngine.scoring(1)).started();
  left.leave();
  await left.over;
  t.equal(await input(), 72, 'as it is billed');
});
