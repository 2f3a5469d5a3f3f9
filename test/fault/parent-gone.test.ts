/** Busy children whose sidecar is killed: none runs on until its work is done. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { LONG } from '../support/long-form.js';
import { childrenOf, eventually, isRunning, signalGroup, usedCpuMs } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

/** What is promised. The work itself takes far longer. */
const GONE_MS = 1000;
/**
 * By the clock in `make test`, since a process of a busy machine may wait for seconds. What the children work meanwhile has the
 * promised bound there too.
 */
const GONE_BY_CLOCK_MS = LONG ? GONE_MS : 15_000;

/** After so much processor time it is in the middle of its work. */
const BUSY_MS = 300;

/** Tokens; a prompt of half as many is one decode of many seconds. */
const CONTEXT = 32_768;

const OWNER = fileURLToPath(new URL('../support/prompt-host-owner.js', import.meta.url));

async function goneSoon(t: Test, what: string, pids: readonly number[], kill: () => unknown): Promise<void> {
  const used = new Map(pids.map((pid) => [pid, usedCpuMs(pid)]));
  const sum = (): number => [...used.values()].reduce((all, each) => all + each, 0);
  const [before, from] = [sum(), performance.now()];
  kill();
  await eventually(`${what} gone`, () => {
    const left = pids.filter(isRunning);
    for (const pid of left) used.set(pid, cpuMsUnlessEnded(pid) ?? used.get(pid) ?? 0);
    return left.length === 0;
  });
  t.ok(sum() - before < GONE_MS, `${what}: worked for ${sum() - before} ms`);
  const ms = Math.round(performance.now() - from);
  t.ok(ms < GONE_BY_CLOCK_MS, `${what}: gone after ${ms} ms`);
}

function cpuMsUnlessEnded(pid: number): number | undefined {
  try {
    return usedCpuMs(pid);
  } catch {
    return undefined;
  }
}

t.test('a prompt host whose own thread is busy', async (t) => {
  const log = join(t.testdir({ log: '' }), 'log');
  const body = JSON.stringify({ name: 'stuck', log, do: 'hang' });
  const owner = spawn(process.execPath, [OWNER, body], { stdio: 'ignore', detached: true });
  const group = owner.pid ?? 0;
  t.teardown(() => signalGroup(group, 'SIGKILL'));
  await eventually('the item runs', () => readFileSync(log, 'utf8') === 'stuck start\n');
  const hosts = childrenOf(group).map(({ pid }) => pid);
  t.equal(hosts.length, 1);
  await goneSoon(t, 'prompt host', hosts, () => owner.kill('SIGKILL'));
});

t.test('an engine during a long decode', async (t) => {
  const { models } = await chatOnly(1, CONTEXT);
  const [model] = models;
  // One decode of the whole prompt.
  const config = { models: [{ ...model, prefillTokensPerStep: CONTEXT, threads: 1 }] };
  const sidecar = await Sidecar.start(t, { ownGroup: true, config });
  const engine = sidecar.enginePid(CHAT);
  const children = childrenOf(sidecar.pid).map(({ pid }) => pid);
  const before = usedCpuMs(engine);
  const content = 'word '.repeat(CONTEXT / 2);
  sidecar.chat({ messages: [{ role: 'user', content }], max_tokens: 4 }).catch(() => undefined);
  await eventually('it decodes', () => usedCpuMs(engine) - before > BUSY_MS);
  await goneSoon(t, 'engine and prompt hosts', children, () => sidecar.child.kill('SIGKILL'));
});
