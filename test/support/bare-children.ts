/**
 * Preloaded into each test of `make test`: takes back what tap puts into every Node process that a test starts, its hooks
 * and its coverage. They take a quarter of a second of each process, and one sidecar on a real engine is nine. `make
 * coverage` leaves this out.
 */
import { createRequire } from 'node:module';

interface OnSpawn {
  removeAllListeners(): void;
}

// What a child gets added where it is started.
const onSpawn = createRequire(import.meta.url)('process-on-spawn') as OnSpawn;
onSpawn.removeAllListeners();

// What it inherits, once more: tap names its hooks in this process's arguments and in its environment.
const ours = (process.env['NODE_OPTIONS'] ?? '').split(' ').filter((option) => !option.includes('@tapjs/processinfo'));
process.env['NODE_OPTIONS'] = ours.join(' ');
