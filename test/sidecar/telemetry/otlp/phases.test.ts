import t from 'tap';
import { phasesOf } from '../../../../sidecar/telemetry/otlp/phases.js';
import { requestRecord, ATTEMPT, WAITED } from '../../../support/request-records.js';

/** `name from-until` of each, `@` its replica. */
const reported = (...args: Parameters<typeof requestRecord>): string[] =>
  phasesOf(requestRecord(...args)).map(
    ({ name, from, until, replica, lost }) =>
      `${name} ${from}-${until}${replica === undefined ? '' : `@${replica}`}${lost ? ' lost' : ''}`,
  );

t.test('a reply has all parts, without gaps', async (t) => {
  t.strictSame(reported(), [
    'receive 0-10',
    'prepare 10-20',
    'queue 20-30',
    'prefill 30-40@1',
    'decode 40-50@1',
    'flush 50-60',
  ]);
  t.equal(
    reported({ authorized: { from: 2, until: 12 } })[0],
    'authorize 2-12',
    'beside them the key’s check, if it was checked here',
  );
});

t.test('the last part ends when the request ended', async (t) => {
  const nothing = { last: undefined, receivedAt: undefined };
  t.strictSame(reported({ ...nothing, endedAt: 7 }), ['receive 0-7']);
  t.equal(reported({ last: undefined, endedAt: 17 }).at(-1), 'prepare 10-17');
  t.equal(reported({ last: WAITED, endedAt: 99 }).at(-1), 'queue 20-99');
  t.equal(
    reported({ last: { ...WAITED, seatedAt: 30 }, endedAt: 99 }).at(-1),
    'queue 20-99',
    'with a seat, and no job',
  );
  t.equal(
    reported({ last: { ...ATTEMPT, firstTokenAt: undefined, ranUntil: undefined }, endedAt: 99 }).at(-1),
    'prefill 30-99@1',
  );
  t.equal(reported({ last: { ...ATTEMPT, ranUntil: undefined }, endedAt: 99 }).at(-1), 'decode 40-99@1');
});

t.test('questions are answered in the prefill', async (t) => {
  const last = { ...ATTEMPT, firstTokenAt: undefined };
  t.strictSame(reported({ operation: 'decisions', last }).slice(3), ['prefill 30-50@1', 'flush 50-60']);
});

t.test('a request without a model has only its key’s check', async (t) => {
  t.strictSame(reported({ operation: undefined, authorized: { from: 1, until: 3 } }), ['authorize 1-3']);
  t.strictSame(reported({ operation: undefined }), []);
});

t.test('an engine that was lost before it began results in a separate try', async (t) => {
  const lost = { readyAt: 20, seatedAt: 21, replica: 0, handedOverAt: 22, firstTokenAt: undefined, ranUntil: 25 };
  const last = { readyAt: 25, seatedAt: 30, replica: 1, handedOverAt: 30, firstTokenAt: 40, ranUntil: 50 };
  t.strictSame(reported({ lost: [lost], last }).slice(1), [
    'prepare 10-20',
    'queue 20-21',
    'prefill 22-25@0 lost',
    'queue 25-30',
    'prefill 30-40@1',
    'decode 40-50@1',
    'flush 50-60',
  ]);
});

t.test('a second one too, after which the queue does not take it back', async (t) => {
  const lost = [
    { readyAt: 20, seatedAt: 21, replica: 0, handedOverAt: 22, firstTokenAt: undefined, ranUntil: 25 },
    { readyAt: 25, seatedAt: 30, replica: 1, handedOverAt: 30, firstTokenAt: undefined, ranUntil: 35 },
  ];
  const last = {
    readyAt: 35,
    seatedAt: undefined,
    replica: undefined,
    handedOverAt: undefined,
    firstTokenAt: undefined,
    ranUntil: undefined,
  };
  t.strictSame(reported({ lost, last, endedAt: 36 }).slice(1), [
    'prepare 10-20',
    'queue 20-21',
    'prefill 22-25@0 lost',
    'queue 25-30',
    'prefill 30-35@1 lost',
    'queue 35-36',
  ]);
});
