/**
 * A sidecar with stand-in engines in a separate process, for console.bench: sends its two ports and ends with its parent.
 * Accounts are known by their numbers as keys.
 */
import { ACME, InProcess } from '../../test/support/in-process.js';
import { ACCOUNTS } from './accounts.js';

const teardowns: (() => Promise<void> | void)[] = [];
const sidecar = await InProcess.start(
  { teardown: (fn) => void teardowns.push(fn) },
  {
    models: [
      { id: 'wide', kind: 'chat', seats: 64 },
      { id: 'other', kind: 'chat', seats: 8 },
    ],
    config: { development: { validateAnswers: false } },
  },
);
for (let i = 0; i < ACCOUNTS; i += 1) {
  sidecar.identity.answers.set(`Bearer ${i}`, { ...ACME, account: `account-${i}`, keyId: `key-${i}` });
}
process.send?.({ port: sidecar.port, operatorsPort: sidecar.app.operatorsPort });
process.once('disconnect', () => {
  const end = async (): Promise<void> => {
    for (const teardown of teardowns) await teardown();
    process.exit(0);
  };
  void end();
});
