import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import t from 'tap';
import { WatchedExporter } from '../../../../sidecar/telemetry/otlp/open.js';
import { FakeClock } from '../../../support/fake-clock.js';

type Told = (result: ExportResult) => void;

/** A running export, and its reported outcome. */
function exporting(inner: (reported: Told) => void): { clock: FakeClock; ends: string[]; results: number[] } {
  const clock = new FakeClock();
  const ends: string[] = [];
  const results: number[] = [];
  const exporter = new WatchedExporter<string>(
    { export: (_, reported) => inner(reported), shutdown: () => Promise.resolve() },
    { clock, timeoutMs: 5000, ended: (ok, why) => ends.push(ok ? 'ok' : why) },
  );
  exporter.export('items', ({ code }) => results.push(code));
  return { clock, ends, results };
}

t.test('an export that never ends by itself is ended, once', async (t) => {
  let late: Told = () => undefined;
  const { clock, ends, results } = exporting((reported) => (late = reported));
  clock.advance(5999);
  t.strictSame(ends, []);
  clock.advance(1);
  t.strictSame(ends, ['timeout']);
  late({ code: ExportResultCode.SUCCESS });
  t.strictSame([ends, results], [['timeout'], [ExportResultCode.FAILED]]);
});

t.test('the reason of a failure is a status or a code, never the endpoint’s text', async (t) => {
  const failing = (error: Error & { code?: unknown }): string[] =>
    exporting((reported) => reported({ code: ExportResultCode.FAILED, error })).ends;
  t.strictSame(failing(Object.assign(new Error('words'), { code: 503 })), ['status 503']);
  t.strictSame(failing(Object.assign(new Error('words'), { code: 'ECONNRESET' })), ['ECONNRESET']);
  t.strictSame(failing(Object.assign(new Error('words'), { code: 'some words' })), ['failed']);
  t.strictSame(failing(new Error('words')), ['failed']);
  t.strictSame(failing(new Error('Request timed out')), ['timeout']);
});

t.test('one that throws has failed, and no timer is left', async (t) => {
  const { clock, results } = exporting(() => {
    throw new Error('words');
  });
  t.strictSame(results, [ExportResultCode.FAILED]);
  t.equal(clock.pending, 0);
  t.equal(exporting((reported) => reported({ code: ExportResultCode.SUCCESS })).clock.pending, 0);
});
