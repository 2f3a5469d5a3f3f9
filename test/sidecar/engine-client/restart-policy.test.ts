import t from 'tap';
import type { EngineFacts } from '../../../sidecar/engine-client/engine.js';
import type { Log } from '../../../sidecar/telemetry/logger.js';
import type { ChildEnd } from '../../../sidecar/lib/child-process.js';
import { reportReady, RestartPolicy } from '../../../sidecar/engine-client/restart-policy.js';

const TIMING = { backoffMinMs: 10, backoffMaxMs: 80 };

function policy(patient = false): RestartPolicy {
  return new RestartPolicy(TIMING, () => 1, patient);
}

function end(reason: ChildEnd['reason'], more: Partial<ChildEnd> = {}): ChildEnd {
  return { reason, code: null, signal: null, ...more };
}

const again = (waitMs: number): object => ({ kind: 'again', waitMs });

t.test('ends are followed by growing waits, and a long life resets them', async (t) => {
  const p = policy();
  const dies = end('killed');
  t.same([p.after(dies, undefined), p.after(dies, undefined), p.after(dies, 79)], [again(10), again(20), again(40)]);
  t.same([p.after(dies, 80), p.after(dies, 1)], [again(10), again(20)]);
});

t.test('a model that cannot be served stays so, however often it was ready', async (t) => {
  const unable = end('unable', { detail: 'the file is cut off', mayMend: false });
  t.same(policy().after(unable, undefined), { kind: 'final', why: 'the file is cut off', unfit: true });
  const p = policy(true);
  p.after(end('killed'), 100);
  t.same(p.after(unable, undefined), { kind: 'final', why: 'the file is cut off', unfit: true });
});

t.test('a temporary cause is final only at a first start', async (t) => {
  const unable = end('unable', { detail: 'no memory', mayMend: true });
  t.same(policy().after(unable, undefined), { kind: 'final', why: 'no memory', unfit: true });
  t.same(policy(true).after(unable, undefined), again(10), 'lazy: a later request loads it again');
  const p = policy();
  p.after(end('killed'), 1);
  t.same(p.after(unable, undefined), again(20), 'it was ready before');
});

t.test('a load that crashes repeatedly is given up', async (t) => {
  for (const reason of ['aborted', 'crashed'] as const) {
    const p = policy(true);
    const dies = end(reason, { hint: 'assertion' });
    t.same([p.after(dies, undefined), p.after(dies, undefined)], [again(10), again(20)]);
    t.match(p.after(dies, undefined), {
      kind: 'final',
      unfit: false,
      why: `llama.cpp ended each of 3 loads by a crash (${reason}: assertion); the file may be damaged`,
    });
  }
});

t.test('after device errors, what to look at is the GPU and not the file', async (t) => {
  const p = policy();
  const dies = end('aborted', { hint: 'device-error' });
  p.after(dies, undefined);
  p.after(dies, undefined);
  t.match(p.after(dies, undefined), { kind: 'final', why: /\(aborted: device-error\); ra-sidecar doctor runs a step/ });
});

t.test('not if it was ready before, and not for ends with other causes', async (t) => {
  const p = policy();
  p.after(end('aborted'), 5);
  for (let i = 0; i < 10; i += 1) t.equal(p.after(end('aborted'), undefined).kind, 'again');
  const other = policy();
  for (const reason of ['killed', 'hang', 'start-timeout', 'exited', 'protocol', 'unstartable'] as const) {
    for (let i = 0; i < 4; i += 1) t.equal(other.after(end(reason), undefined).kind, 'again', reason);
  }
});

const AGE = { maxAgeMs: 1000 };

t.test('what a ready engine could not have is a warning', async (t) => {
  const logged = (
    has: number | undefined,
    bytes?: number,
    prefixReuse: 'auto' | 'off' = 'auto',
    warnings: readonly string[] = [],
  ): unknown[] => {
    const lines: unknown[] = [];
    const write = (event: string, fields: object = {}): unknown => lines.push([event, fields]);
    const log = { info: write, warn: write } as unknown as Log;
    const facts = {
      seats: 4,
      gpu: false,
      warnings,
      ...(has !== undefined && { prefixCacheBytes: has }),
    } as EngineFacts;
    const prefixCache = { ...AGE, ...(bytes !== undefined && { bytes }) };
    reportReady(log, { model: 'chat' }, facts, { prefixCache, prefixReuse }, 12.3);
    return lines;
  };
  const ready = ['engine ready', { model: 'chat', seats: 4, backend: 'cpu', durationMs: 12 }];
  t.same(logged(100, 100), [ready]);
  t.same(logged(100), [ready], 'none is set');
  t.same(logged(undefined, 100), [ready], 'of an engine that does not say');
  const slots = ['engine should be set up otherwise', { model: 'chat', reason: 'with --slots 4' }];
  t.same(logged(undefined, undefined, 'off', ['with --slots 4']), [ready, slots]);
  t.same(logged(0, 100, 'off'), [ready], 'nothing is reused');
  t.match(logged(64, 100), [
    ready,
    ['prefix cache is smaller than configured', { model: 'chat', bytes: 64, reason: /dev.shm/ }],
  ]);
});
