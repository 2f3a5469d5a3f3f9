/**
 * A sidecar with stand-in engines in a separate process, for console.bench: sends its two ports and ends with its parent.
 * Accounts are known by their numbers as keys.
 */
import { ACME, InProcess } from '../../test/support/in-process.js';
import { ACCOUNTS } from './accounts.js';
import { Teardowns } from '../support/teardowns.js';

const teardowns = new Teardowns();
const sidecar = await InProcess.start(teardowns, {
  models: [
    { id: 'wide', kind: 'chat', seats: 64 },
    { id: 'other', kind: 'chat', seats: 8 },
  ],
  config: { development: { validateAnswers: false } },
});
for (let i = 0; i < ACCOUNTS; i += 1) {
  sidecar.identity.answers.set(`Bearer ${i}`, { ...ACME, account: `account-${i}`, keyId: `key-${i}` });
}
process.send?.({ port: sidecar.port, operatorsPort: sidecar.app.operatorsPort });
process.once('disconnect', () => {
  const end = async (): Promise<void> => {
    await teardowns.run();
    process.exit(0);
  };
  void end();
});
