import t from 'tap';
import { EndedStreams } from '../../../sidecar/http/ended-streams.js';
import { FakeClock } from '../../support/fake-clock.js';

/** 100 for one address, 200 for all. */
const LIMITS = { streamBytes: 1, totalBytes: 800 };

t.test('what streams leave is summed by address and in all, until the address has been quiet', (t) => {
  const clock = new FakeClock();
  const streams = new EndedStreams(clock, LIMITS);
  const leaves = (address: string, bytes: number): boolean => {
    const stream = streams.open(address);
    const may = stream.mayLeave(bytes);
    stream.close();
    return may;
  };
  t.same([leaves('a', 60), leaves('a', 50), leaves('a', 40), leaves('a', 1)], [true, false, true, false]);
  t.equal(streams.bytes, 100);
  t.same([leaves('b', 90), leaves('c', 20), leaves('c', 10)], [true, false, true], 'all together');
  clock.advance(19_000);
  t.notOk(leaves('d', 1));
  const open = streams.open('b');
  clock.advance(2000);
  t.equal(streams.bytes, 90, 'an address with an open stream is not quiet');
  t.ok(leaves('a', 100));
  open.close();
  open.close();
  clock.advance(19_000);
  t.equal(streams.bytes, 190);
  clock.advance(2000);
  t.equal(streams.bytes, 0);
  t.end();
});

t.test('several open streams of one address, some of which leave nothing', (t) => {
  const clock = new FakeClock();
  const streams = new EndedStreams(clock, LIMITS);
  const [first, second] = [streams.open('a'), streams.open('a')];
  t.ok(first.mayLeave(70));
  first.close();
  clock.advance(60_000);
  t.notOk(second.mayLeave(70), 'the second may be on the connection of the first');
  second.close();
  clock.advance(21_000);
  const third = streams.open('a');
  t.ok(third.mayLeave(70));
  third.close();
  streams.open('b').close();
  t.equal(streams.bytes, 70);
  t.end();
});
