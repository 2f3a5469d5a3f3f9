/**
 * A process that confines itself as a vision process does, tries what is forbidden, and prints the codes of its
 * failures as JSON. Arguments: a model’s file and its projector’s.
 */
import { spawnSync } from 'node:child_process';
import { openSync, readFileSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { connect } from 'node:net';
import { openVision } from '../../engine/llama/vision.js';

const [file = '', projector = ''] = process.argv.slice(2);
const setup = {
  file,
  projector,
  threads: 1,
  maxPixels: 1,
  cacheBytes: 0,
  heartbeatMs: 1000,
  maxAgeMs: 1000,
  gpu: false as const,
};
const vision = await openVision(setup);
if (!vision) throw new Error('the addon was built without images: run make engine-native');
const confinement = vision.confine(2 ** 40);

function codeOf(attempt: () => unknown): string {
  try {
    attempt();
    return 'done';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}

const connected = await new Promise<string>((resolve) => {
  const socket = connect({ host: '127.0.0.1', port: 1 });
  socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'));
  socket.once('connect', () => resolve('done'));
});

const results = {
  confinement,
  read: codeOf(() => readFileSync('/etc/hostname')),
  projector: codeOf(() => openSync(projector, 'r')),
  write: codeOf(() => writeFileSync('/tmp/ra-confined', 'x')),
  stat: codeOf(() => statSync('/')),
  connected,
  spawned: spawnSync('/bin/true').error?.message.replace(/^.* /, '') ?? 'done',
  signalled: codeOf(() => process.kill(process.ppid, 0)),
  itself: codeOf(() => process.kill(process.pid, 0)),
  // Its own task still works, on its own threads.
  layout: vision.layout({ width: 10, height: 10 }).length > 0,
};
writeSync(1, JSON.stringify(results));
process.kill(process.pid, 'SIGKILL');
