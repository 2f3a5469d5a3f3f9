/**
 * Preloaded into each test of `make test`: removes what tap adds to every Node process that a test starts, its hooks
 * and its coverage. They cost a quarter of a second per process, and one sidecar on a real engine has nine. `make
 * coverage` does not use this.
 */
import { createRequire } from 'node:module';

interface OnSpawn {
  removeAllListeners(): void;
}

// What tap adds to a child’s arguments.
const onSpawn = createRequire(import.meta.url)('process-on-spawn') as OnSpawn;
onSpawn.removeAllListeners();

// What a child inherits: tap names its hooks in this process’s arguments and in its environment.
const ours = (process.env['NODE_OPTIONS'] ?? '').split(' ').filter((option) => !option.includes('@tapjs/processinfo'));
process.env['NODE_OPTIONS'] = ours.join(' ');
