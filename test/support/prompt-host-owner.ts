/**
 * Owns a short lane’s prompt host with the stub’s worker, for a test that kills it: argv[2] is the body of its only
 * item.
 */
import { fileURLToPath } from 'node:url';
import { systemClock } from '../../sidecar/lib/clock.js';
import { PromptHostClient } from '../../sidecar/prompts/client.js';
import { received } from './bodies.js';

const client = new PromptHostClient({
  name: 'short',
  models: [],
  workers: 0,
  silenceMs: 600_000,
  maxQueued: 1,
  inlineBytes: 1000,
  clock: systemClock,
  workerFile: fileURLToPath(new URL('./prompt-worker.js', import.meta.url)),
});
await client.ready();
void client
  .open('chat', received(Buffer.from(process.argv[2] ?? '')), { account: 'a', weight: 1 })
  .tokenize(new AbortController().signal);
// Until it is killed.
setInterval(() => undefined, 60_000);
