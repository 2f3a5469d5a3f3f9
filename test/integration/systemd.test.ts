import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { env } from 'node:process';
import t, { type Test } from 'tap';
import { eventually } from '../support/processes.js';
import { shortDir } from '../support/short-dir.js';
import { chatOnly, Sidecar, unloadedChat } from '../support/sidecar.js';
import { ENGINE, ProcessGate } from '../support/process-gate.js';

/** A `systemd-notify` that records its messages; test/e2e/systemd.e2e.ts uses the real one. */
function notifier(t: Test): { readonly path: string; readonly reported: () => string } {
  const dir = shortDir(t);
  const [program, log] = [join(dir, 'systemd-notify'), join(dir, 'reported')];
  writeFileSync(program, `#!/bin/sh\necho "$1 $NOTIFY_SOCKET" >> '${log}'\n`);
  chmodSync(program, 0o755);
  return {
    path: `${dir}${delimiter}${env['PATH'] ?? ''}`,
    reported: () => (existsSync(log) ? readFileSync(log, 'utf8') : ''),
  };
}

t.test('systemd is notified once it is ready, and when it stops', async (t) => {
  const { path, reported } = notifier(t);
  const gate = new ProcessGate(t, { stub: true });
  gate.close(ENGINE);
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: await chatOnly(1),
    early: true,
    environment: { ...gate.environment, PATH: path, NOTIFY_SOCKET: '@test' },
  });
  const { goOn } = await gate.stopped();
  t.equal(reported(), '', 'not while a model loads');
  goOn();
  await eventually('reported', () => reported() === 'READY=1 @test\n');
  t.equal((await sidecar.readyz()).status, 200);
  sidecar.child.kill('SIGTERM');
  await eventually('reported', () => reported() === 'READY=1 @test\nSTOPPING=1 @test\n');
  t.strictSame(await sidecar.exited(), { code: 0, signal: null });
});

t.test('without systemd there is no notification; without its program that is logged', async (t) => {
  const { path, reported } = notifier(t);
  const config = await unloadedChat();
  await Sidecar.start(t, { config, environment: { PATH: path, NOTIFY_SOCKET: '' } });
  const sidecar = await Sidecar.start(t, {
    config,
    environment: { PATH: shortDir(t), NOTIFY_SOCKET: '@test' },
  });
  t.match(await sidecar.logged('systemd was not notified'), { reason: 'READY=1' });
  t.equal(reported(), '');
});
