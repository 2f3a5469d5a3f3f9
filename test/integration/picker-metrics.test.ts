/**
 * A real sidecar as the inference extension’s endpoint picker sees it: on the public port, without a key, with the
 * names that deploy/kubernetes configures. The picker takes the first series of a name and adds up nothing.
 */
import t, { type Test } from 'tap';
import { engineSpecs, flagSpecs } from '../deploy/manifests.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Families of a page in Prometheus’ text format, each with its type and samples. Throws on any other line. */
function families(page: string): Map<string, { type: string; samples: Sample[] }> {
  const found = new Map<string, { type: string; samples: Sample[] }>();
  for (const line of page.split('\n')) {
    if (line === '' || line.startsWith('# HELP ')) continue;
    const typed = /^# TYPE (\S+) (\S+)$/.exec(line);
    if (typed) {
      found.set(typed[1] ?? '', { type: typed[2] ?? '', samples: [] });
      continue;
    }
    const [, name = '', inner = '', value = ''] = /^([a-z_:]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    const family = found.get(name);
    if (family === undefined) throw new Error(`a sample without its type: ${line}`);
    const pairs = [...inner.matchAll(/([a-z_]+)="([^"]*)"/g)].map(([, label = '', text = '']) => [label, text]);
    family.samples.push({ labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) });
  }
  return found;
}

async function scrape(t: Test, { port }: Sidecar): Promise<ReturnType<typeof families>> {
  const response = await fetch(`http://127.0.0.1:${port}/metrics`);
  t.equal(response.status, 200);
  return families(await response.text());
}

t.test('each metric of the model server protocol', async (t) => {
  const { models } = await chatOnly(2, 16_000);
  const config = { models, fleet: { pickerMetrics: true }, queue: PATIENT_QUEUE };
  const sidecar = await Sidecar.start(t, { stub: true, config });
  const specs = engineSpecs();
  const valueOf = async (name: string): Promise<number> => {
    const family = (await scrape(t, sidecar)).get(name);
    t.equal(family?.type, 'gauge', `${name}: the type that the protocol requires`);
    t.equal(family?.samples.length, 1, `${name}: one series, since the picker would read only the first model’s`);
    return family?.samples[0]?.value ?? NaN;
  };

  await t.test('idle', async (t) => {
    for (const spec of [specs.queued, specs.running, specs.kvUsage]) t.equal(await valueOf(spec), 0, spec);
    const [info] = (await scrape(t, sidecar)).get(specs.cacheInfo)?.samples ?? [];
    t.strictSame(
      info?.labels,
      { block_size: '64', num_gpu_blocks: '500' },
      'whole numbers in the labels that it reads',
    );
    t.strictSame(flagSpecs(), specs, 'the same metrics by its flags and by its configuration');
  });

  await t.test('with all seats busy and requests waiting', async (t) => {
    const leave = new AbortController();
    const endless = { messages: [{ role: 'user', content: 'Hi' }], stream: true };
    const streams = [0, 1, 2, 3, 4].map((i) =>
      sidecar.chat({ ...endless, user: `user-${i}` }, { signal: leave.signal }).catch(() => undefined),
    );
    await sidecar.reaches('ra_sidecar_endpoint_waiting_requests', 3);
    t.equal(await valueOf(specs.queued), 3, 'TotalQueuedRequests');
    t.equal(await valueOf(specs.running), 2, 'TotalRunningRequests');
    t.equal(await valueOf(specs.kvUsage), 1, 'KVCacheUtilization, a fraction');
    const tokens = await valueOf('ra_sidecar_endpoint_kv_usage_ratio');
    t.ok(tokens >= 0 && tokens < 1, 'the tokens themselves are few');
    leave.abort();
    await Promise.all(streams);
    await sidecar.reaches('ra_sidecar_endpoint_running_requests', 0);
    t.equal(await valueOf(specs.queued), 0);
  });
});
