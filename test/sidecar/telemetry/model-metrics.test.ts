import t from 'tap';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

const ABOUT = (operation: string, model: string): string =>
  `gen_ai_operation_name="${operation}",gen_ai_provider_name="ra-sidecar",gen_ai_request_model="${model}",gen_ai_response_model="${model}"`;

async function sample(metrics: Metrics, text: string): Promise<number | undefined> {
  const page = await metrics.render();
  const line = page.text.split('\n').find((each) => each.startsWith(`${text} `));
  return line === undefined ? undefined : Number(line.slice(text.length));
}

t.test('times are seconds, under OpenTelemetry’s names and labels', async (t) => {
  const metrics = new Metrics(['m']);
  const meter = metrics.requests.meter('chat', 'm');
  t.equal(metrics.requests.meter('chat', 'm'), meter, 'made once');
  meter.firstToken(40);
  meter.ended(1500);
  meter.ended(20, 'capacity_exceeded');
  meter.piece(30);
  meter.piece(2);
  meter.replied(4, 100);
  meter.replied(0, 100);
  const chat = ABOUT('chat', 'm');
  for (const [text, value] of [
    [`gen_ai_server_time_to_first_token_seconds_sum{${chat}}`, 0.04],
    [`gen_ai_server_time_to_first_token_seconds_bucket{le="0.04",${chat}}`, 1],
    [`gen_ai_server_time_to_first_token_seconds_bucket{le="0.02",${chat}}`, 0],
    [`gen_ai_server_request_duration_seconds_sum{${chat}}`, 1.5],
    [`gen_ai_server_request_duration_seconds_count{${chat},error_type="capacity_exceeded"}`, 1],
    [`gen_ai_server_time_per_output_token_seconds_sum{${chat}}`, 0.025],
    [`gen_ai_server_time_per_output_token_seconds_count{${chat}}`, 1],
    ['ra_sidecar_inter_token_seconds_sum{model="m"}', 0.032],
    ['ra_sidecar_inter_token_seconds_bucket{le="0.0025",model="m"}', 1],
  ] as const)
    t.equal(await sample(metrics, text), value, text);
});

t.test('tokens by type; a model that is not configured has no label of its own', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.requests.meter('chat', 'm').used({ prompt: 10, cached: 4, completion: 3, drafted: 7, accepted: 2 });
  metrics.requests.meter('decisions', 'm').used({ prompt: 5, cached: 1, completion: 0 });
  metrics.requests.meter('chat', 'whatever-a-caller-wrote').used({ prompt: 1, cached: 0, completion: 0 });
  for (const [text, value] of [
    [`gen_ai_client_token_usage_sum{${ABOUT('chat', 'm')},gen_ai_token_type="input"}`, 10],
    [`gen_ai_client_token_usage_sum{${ABOUT('chat', 'm')},gen_ai_token_type="output"}`, 3],
    [`gen_ai_client_token_usage_sum{${ABOUT('decisions', 'm')},gen_ai_token_type="input"}`, 5],
    [`gen_ai_client_token_usage_count{${ABOUT('chat', 'other')},gen_ai_token_type="input"}`, 1],
    ['ra_sidecar_cached_tokens_total{model="m"}', 5],
    ['ra_sidecar_drafted_tokens_total{model="m"}', 7],
    ['ra_sidecar_accepted_tokens_total{model="m"}', 2],
  ] as const)
    t.equal(await sample(metrics, text), value, text);
  t.notMatch((await metrics.render()).text, 'whatever');
});
