import t from 'tap';
import type { EngineFacts } from '../../../sidecar/engine-client/engine.js';
import { reportReady } from '../../../sidecar/engine-client/ready-report.js';
import type { Log } from '../../../sidecar/telemetry/logger.js';

const AGE = { maxAgeMs: 1000 };

t.test('a prefix cache that is smaller than configured is a warning', async (t) => {
  const logged = (has: number | undefined, bytes?: number, prefixReuse: 'auto' | 'off' = 'auto'): unknown[] => {
    const lines: unknown[] = [];
    const write = (event: string, fields: object = {}): unknown => lines.push([event, fields]);
    const log = { info: write, warn: write } as unknown as Log;
    const facts = { seats: 4, gpu: false, ...(has !== undefined && { prefixCacheBytes: has }) } as EngineFacts;
    const prefixCache = { ...AGE, ...(bytes !== undefined && { bytes }) };
    reportReady(log, { model: 'chat' }, facts, { prefixCache, prefixReuse }, 12.3);
    return lines;
  };
  const ready = ['engine ready', { model: 'chat', seats: 4, backend: 'cpu', durationMs: 12 }];
  t.same(logged(100, 100), [ready]);
  t.same(logged(100), [ready], 'none is set');
  t.same(logged(undefined, 100), [ready], 'of an engine that does not say');
  t.same(logged(0, 100, 'off'), [ready], 'nothing is reused');
  t.match(logged(64, 100), [
    ready,
    ['prefix cache is smaller than configured', { model: 'chat', bytes: 64, reason: /dev.shm/ }],
  ]);
});
