/** Assertions of tests about a request’s trace. */
import type { Test } from 'tap';
import type { ReceivedSpan } from './otlp-messages.js';
import type { ReceivedTrace } from './otlp-receiver.js';
import type { RawResponse } from './raw-http.js';

/**
 * The difference of two clocks of this machine, one of which has whole milliseconds, and of a caller and its socket.
 */
export const NEAR_MS = 100;

/** Consecutive parts; the key’s check is within one of them. */
export const story = ({ parts }: ReceivedTrace): ReceivedSpan[] => parts.filter(({ name }) => name !== 'authorize');
export const names = (trace: ReceivedTrace): string[] => story(trace).map(({ name }) => name);

/** How long these parts took together, ms. */
export function lasts(trace: ReceivedTrace, ...which: string[]): number {
  return trace.parts.filter(({ name }) => which.includes(name)).reduce((sum, { from, until }) => sum + until - from, 0);
}

/** For every test: one trace, parts in their order, adjacent, within the whole. */
export function isWhole(t: Test, trace: ReceivedTrace): void {
  const { server, parts } = trace;
  t.equal(server.kind, 2, 'a server');
  t.match(server.spanId, /^(?!0{16})[0-9a-f]{16}$/);
  const reported = story(trace);
  for (const [i, part] of parts.entries()) {
    t.equal(part.traceId, server.traceId, `${part.name} in the trace`);
    t.equal(part.kind, 1, 'internal');
    t.ok(part.until >= part.from && part.from >= server.from && part.until <= server.until, `${part.name} within it`);
    t.equal(
      parts.findIndex(({ spanId }) => spanId === part.spanId),
      i,
      'an id of its own',
    );
  }
  t.equal(reported[0]?.from, server.from, 'from the head on');
  t.equal(reported.at(-1)?.until, server.until, 'to the end');
  for (const [i, part] of reported.entries()) {
    const gap = part.from - (reported[i - 1]?.until ?? part.from);
    t.ok(gap >= 0 && gap < NEAR_MS, `${part.name} follows what was before it, ${gap} ms`);
  }
}

/** Server-Timing of the header and of the trailer, ms by name. */
export function timings({ fields, trailers }: RawResponse): Record<string, number> {
  const lines = [...fields, ...trailers].filter(([name]) => name.toLowerCase() === 'server-timing');
  const all = lines.flatMap(([, value]) => [...value.matchAll(/([\w-]+);dur=([\d.]+)/g)]);
  return Object.fromEntries(all.map(([, name = '', dur]) => [name, Number(dur)]));
}
