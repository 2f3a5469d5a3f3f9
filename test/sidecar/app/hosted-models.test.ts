import t from 'tap';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ModelConfig } from '../../../sidecar/config/config.js';
import { gpuUsers } from '../../../sidecar/app/model-processes.js';
import { mappedBeside, warnOfToolFormats } from '../../../sidecar/app/hosted-models.js';

t.test('the mapped bytes of other engines count once a file, without what each has repacked', async (t) => {
  const dir = t.testdir();
  const file = (name: string, bytes: number): string => {
    writeFileSync(join(dir, name), new Uint8Array(bytes));
    return join(dir, name);
  };
  const [own, q8, q4] = [file('own', 7), file('q8', 1000), file('q4', 500)];
  type Engines = Parameters<typeof mappedBeside>[1];
  const ready = (of: string, repackedBytes?: number, gpu: string | false = false): Engines => {
    const facts = { gpu, ...(repackedBytes !== undefined && { repackedBytes }) };
    return [{ engine: { setups: [{ file: of }], replicas: [{ state: 'ready', facts }] } }];
  };
  t.equal(mappedBeside(own, [...ready(own), ...ready(q8), ...ready(q8)]), 1000);
  t.equal(mappedBeside(own, [...ready(q8), ...ready(q4, 450)]), 1050);
  t.equal(mappedBeside(own, ready(q4, 600)), 0, 'never less than 0');
  t.equal(mappedBeside(own, ready(q8, 0, 'cuda')), 0);
  const cold = { setups: [{ file: q8 }], replicas: [{ state: 'cold' as const, facts: undefined }] };
  t.equal(mappedBeside(own, [{ engine: cold }]), 0);
  t.equal(mappedBeside(own, ready(join(dir, 'away'))), 0);
  const facts = { gpu: false } as const;
  const mixed = {
    setups: [{ file: own }, { file: q8 }, { file: q4 }],
    replicas: [
      { state: 'ready' as const, facts },
      { state: 'ready' as const, facts },
      { state: 'cold' as const, facts },
    ],
  };
  t.equal(mappedBeside(own, [{ engine: mixed }]), 1000, 'replicas whose weights were replaced');
  t.equal(mappedBeside(q8, [{ engine: mixed }]), 7);
});

t.test('engines of any kind and what reads images count where they may use a GPU', async (t) => {
  const of = (gpu: 'auto' | false, more: object = {}): number =>
    gpuUsers({ gpu, engine: { kind: 'llama.cpp' }, ...more } as unknown as ModelConfig, 2);
  const seeing = { vision: { devices: '0' } };
  t.same([of('auto'), of('auto', { kind: 'embedding', prefixCache: { bytes: 1 } }), of('auto', seeing)], [2, 2, 3]);
  t.same([of(false), of('auto', { vision: {} }), of('auto', { engine: { kind: 'vllm' } })], [0, 2, 0]);
});

t.test('a JSON instruction that the operator did not choose is logged', async (t) => {
  const lines: unknown[] = [];
  const calls = (native: boolean, chosen: boolean) => ({ native, chosen, says: 'how it calls' });
  const models = [
    { id: 'native', calls: calls(true, false) },
    { id: 'named', calls: calls(true, true) },
    { id: 'unknown', calls: calls(false, false) },
    { id: 'chosen', calls: calls(false, true) },
    { id: 'decision' },
  ];
  warnOfToolFormats(models, { warn: (event, fields) => lines.push([event, fields]) });
  t.same(lines, [['tools without a native format', { model: 'unknown', reason: 'how it calls' }]]);
});
