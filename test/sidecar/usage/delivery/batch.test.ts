import t from 'tap';
import { nextBatch } from '../../../../sidecar/usage/delivery/batch.js';
import { START } from '../../../../sidecar/usage/segments.js';
import { MemorySource } from '../../../support/memory-delivery.js';
import { usageRecord } from '../../../support/usage-records.js';

t.test('a long part without billed records is read in pieces', async (t) => {
  const source = new MemorySource();
  const open = usageRecord('a', 'open');
  source.records.push(...new Array<typeof open>(100_000).fill(open), open, usageRecord('a', 'close'));
  source.durable = source.records.length;
  const limits = { maxEvents: 5, maxBytes: 1000 };
  const first = await nextBatch(source, START, limits, '/test');
  t.match(first, { entries: [], after: MemorySource.position(100_000), drained: false });
  const second = await nextBatch(source, first.after, limits, '/test');
  t.match(second, { entries: [{ event: { id: 'a' } }], after: source.end, drained: true });
});
