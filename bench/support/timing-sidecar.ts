/**
 * A sidecar with stub engines in a separate process: sends its port and ends with its parent. Its arguments, if any,
 * are JSON: sections of its configuration, and its models. If it gets a sample of the metrics and a value it answers
 * once that is reached. `Bearer vouched` is the same account as `Bearer good`, named by a gateway; `Bearer key-N` a key of its own, and
 * `Bearer quota-N` one with a quota of tokens that is never reached.
 */
import { collectForRequests } from '../../engine/protocol/process-settings.js';
import { ACME, FakeIdentity, InProcess, type StubModel } from '../../test/support/in-process.js';
import { Teardowns } from './teardowns.js';

/** Seats that are never all in use, and few that always are. */
const MODELS: readonly StubModel[] = [
  { id: 'wide', kind: 'chat', seats: 64 },
  { id: 'narrow', kind: 'chat', seats: 2 },
];

/** Keys besides. */
const KEYS = 100;

// As the program does.
collectForRequests();

const [sections = '{}', stubs = JSON.stringify(MODELS)] = process.argv.slice(2);
const config = JSON.parse(sections) as object;
const models = JSON.parse(stubs) as readonly StubModel[];
const identity = new FakeIdentity();
identity.answers.set('Bearer vouched', { ...ACME, vouched: true });
for (let i = 0; i < KEYS; i++) {
  identity.answers.set(`Bearer key-${i}`, { ...ACME, keyId: `key-${i}` });
  identity.answers.set(`Bearer quota-${i}`, { ...ACME, keyId: `quota-${i}`, tokensPerDay: 1_000_000_000 });
}
const teardowns = new Teardowns();
const sidecar = await InProcess.start(teardowns, {
  keeps: false,
  identity,
  models,
  config: { development: { validateAnswers: false }, ...config },
});
process.send?.(sidecar.port);
process.on('message', ({ sample, value }: { readonly sample: string; readonly value: number }) => {
  void sidecar.until(sample, value).then(() => process.send?.('reached'));
});
process.once('disconnect', () => {
  const end = async (): Promise<void> => {
    await teardowns.run();
    process.exit(0);
  };
  void end();
});
