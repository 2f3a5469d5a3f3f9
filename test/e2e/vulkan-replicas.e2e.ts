/** Replicas on two devices of Vulkan: Mesa's lavapipe, which implements it on a CPU, found by two manifests. */
import t from 'tap';
import type { Check } from '../../sidecar/commands/host-checks.js';
import { EMBEDDED_MODEL } from '../../sidecar/engine-client/weight-files.js';
import { runCli } from '../support/cli.js';
import { PATIENT_ENGINE } from '../support/config-parts.js';
import { poolingModel } from '../support/pooling-models.js';
import { ENDLESS, frames, OpenStream } from '../support/open-stream.js';
import { CHAT, Sidecar } from '../support/sidecar.js';
import { onTwoLavapipes } from './lavapipe.js';
import { addLocked } from './npm-packages.js';

addLocked('@node-llama-cpp/linux-x64-vulkan');

const environment = onTwoLavapipes(t.testdir());
const chat = { id: CHAT, kind: 'chat', file: EMBEDDED_MODEL, seats: 1, contextPerSeat: 2048, gpu: 'vulkan' };

async function doctor(model: object): Promise<Check[]> {
  const { stdout } = await runCli(['doctor', '--json'], {
    ...environment,
    RA_LISTEN_PORT: '0',
    RA_OPERATORS_PORT: '0',
    RA_MODELS: JSON.stringify([model]),
  });
  return (JSON.parse(stdout) as { checks: Check[] }).checks;
}

/** MiB or GiB of the device's memory that are free, by the checks. */
const freeIn = (checks: readonly Check[]): string | undefined =>
  checks.find(({ what }) => what === 'GPU memory')?.says.split(' free')[0];

t.test('auto is one on each device, and both work at once', async (t) => {
  const sidecar = await Sidecar.start(t, { config: { models: [{ ...chat, replicas: 'auto' }] }, environment });
  for (const replica of [0, 1]) {
    t.match(await sidecar.logged('engine ready', 1, (line) => line['replica'] === replica), { backend: 'vulkan' });
  }
  const body = { ...ENDLESS, max_tokens: 500 };
  const streams = await Promise.all([OpenStream.begin(sidecar, body), OpenStream.begin(sidecar, body)]);
  for (const replica of ['0', '1']) {
    t.equal(await sidecar.metric('ra_sidecar_replica_seats_busy', { model: CHAT, replica }), 1);
  }
  process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
  const ends = await Promise.all(streams.map(async ({ response }) => frames(await response).at(-1) === '[DONE]'));
  t.strictSame(ends.sort(), [false, true], 'the other device’s stream goes on');
});

t.test('an embedding model is one on each device too, and both make the vectors of the other', async (t) => {
  const model = {
    id: 'embed',
    kind: 'embedding',
    file: await poolingModel('mean'),
    contextPerSeat: 512,
    gpu: 'vulkan',
    // A step on a CPU that emulates a device takes seconds.
    prefillTokensPerStep: 128,
  };
  const sidecar = await Sidecar.start(t, {
    config: { models: [{ ...model, seats: 1, replicas: 'auto' }], engine: PATIENT_ENGINE },
    environment,
  });
  for (const replica of [0, 1])
    t.match(await sidecar.logged('engine ready', 1, (line) => line['replica'] === replica), { backend: 'vulkan' });
  const input = Array.from({ length: 64 }, (_, i) => Array.from({ length: 32 }, (__, at) => 5 + ((i + at) % 200)));
  const vectors = async (): Promise<number[][]> => {
    const response = await sidecar.post('/embeddings', { model: 'embed', input });
    t.equal(response.status, 200);
    const { data } = (await response.json()) as { readonly data: readonly { readonly embedding: number[] }[] };
    return data.map(({ embedding }) => embedding);
  };
  const both = Promise.all([vectors(), vectors()]);
  for (const replica of ['0', '1'])
    await sidecar.reaches('ra_sidecar_replica_seats_busy', 1, { model: 'embed', replica });
  const [one, other] = await both;
  t.equal(one.length, input.length);
  const cosines = one.map((vector, i) => vector.reduce((sum, value, at) => sum + value * (other[i]?.[at] ?? NaN), 0));
  t.ok(Math.min(...cosines) > 0.9999, `the lowest cosine is ${Math.min(...cosines)}`);
});

t.test('each sees its own device alone, and memory is checked for that', async (t) => {
  // So long that fewer fit than an engine can have.
  const long = { ...chat, contextPerSeat: 65_536 };
  const [both, one] = [await doctor(long), await doctor({ ...long, replicas: [{ devices: 1 }, { devices: 0 }] })];
  t.ok(freeIn(both));
  const seatsOf = (checks: readonly Check[]): number[] =>
    checks.flatMap(({ says }) => [...says.matchAll(/\((\d+) would fit[,)]/g)].map(([, seats]) => Number(seats)));
  const [all = 0] = seatsOf(both);
  const each = seatsOf(one);
  t.equal(each.length, 2);
  for (const seats of each) t.ok(seats < 0.7 * all, `${seats} on one device, ${all} on both`);
  t.strictSame(
    one.map(({ what }) => what).filter((what) => what.startsWith('model ')),
    [`model ${CHAT}, replica 0 (device 1)`, `model ${CHAT}, replica 1 (device 0)`],
  );
});

t.test('a device that is not there ends the start with one line', async (t) => {
  const models = [{ ...chat, replicas: [{ devices: 0 }, { devices: 2 }] }];
  const refused = await Sidecar.launch(t, { config: { models }, environment });
  t.match(await refused.exited(), { code: 1 });
  t.match(refused.printed, /model ra-tiny-chat cannot be served: replica 1 \(device 2\) is not there: .+/);
});
