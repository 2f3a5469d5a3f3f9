import { createServer } from 'node:net';

/** Linux assigns ports from 32,768 on where a process names none, so it assigns none of these to another process of the tests. */
const [FIRST, COUNT] = [20_000, 12_000];

/** Ports that are tried. */
const MOST_TRIES = 100;

/** A port of 127.0.0.1 that was free a moment ago. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const port = FIRST + Math.floor(COUNT * Math.random());
    if (await isFree(port)) return port;
  }
  throw new Error('no port is free');
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}
