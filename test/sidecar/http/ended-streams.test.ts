import t from 'tap';
import { EndedStreams, MOST_ADDRESSES, type FollowedExchange } from '../../../sidecar/http/ended-streams.js';
import { FakeClock } from '../../support/fake-clock.js';

/** 100 for one address, 200 for all. */
const LIMITS = { streamBytes: 1, totalBytes: 800 };

const NOTHING = (): void => undefined;

function setup(): { clock: FakeClock; streams: EndedStreams; leaves: (address: string, bytes: number) => boolean } {
  const clock = new FakeClock();
  const streams = new EndedStreams(clock, LIMITS);
  const leaves = (address: string, bytes: number): boolean => {
    const exchange = streams.follow(address, NOTHING);
    const may = streams.mayLeaveUnread(address, bytes);
    exchange?.done();
    return may;
  };
  return { clock, streams, leaves };
}

/** The exchange, if it is followed. */
function followed(exchange: FollowedExchange | undefined): FollowedExchange {
  if (exchange === undefined) throw new Error('not followed');
  return exchange;
}

t.test(
  'unread rests of ended streams are summed by address and in all, until the address has been quiet',
  async (t) => {
    const { clock, streams, leaves } = setup();
    t.equal(streams.follow('a', NOTHING), undefined, 'before anything was left no exchange is followed');
    t.same([leaves('a', 60), leaves('a', 40), leaves('a', 1)], [true, true, false]);
    t.equal(streams.bytes, 100);
    t.same([leaves('b', 90), leaves('c', 20)], [true, false], 'all together');
    clock.advance(19_000);
    const open = followed(streams.follow('b', NOTHING));
    clock.advance(2000);
    t.equal(streams.bytes, 90, 'an address with an open exchange is not quiet');
    t.ok(leaves('a', 100));
    open.done();
    open.done();
    t.equal(streams.bytes, 100, 'all had to ask since the total was reached');
    clock.advance(19_000);
    t.equal(streams.bytes, 100);
    clock.advance(2000);
    t.equal(streams.bytes, 0);
  },
);

t.test('an address that is never quiet asks for a while, and may then leave rests again', async (t) => {
  const { clock, streams, leaves } = setup();
  t.ok(leaves('gateway', 90));
  let asked = 0;
  for (let second = 0; second < 19; second++) {
    const open = followed(streams.follow('gateway', () => (asked += 1)));
    t.notOk(leaves('gateway', 20), 'all ask, also those that would fit');
    t.notOk(leaves('gateway', 1));
    clock.advance(1000);
    open.done();
  }
  t.equal(streams.bytes, 90);
  const open = followed(streams.follow('gateway', () => (asked += 1)));
  clock.advance(1000);
  t.equal(streams.bytes, 90, 'one is open that began before');
  t.equal(asked, 1, 'it was asked, once');
  const later = followed(streams.follow('gateway', () => (asked += 1)));
  t.notOk(leaves('gateway', 1));
  open.done();
  t.equal(streams.bytes, 0, 'a later one is on a connection that was found empty');
  t.ok(leaves('gateway', 60));
  later.done();
  clock.advance(19_000);
  t.equal(streams.bytes, 60, 'it is not counted for later rests');
  t.equal(asked, 1);
});

t.test('an exchange that finds its connection empty when it is asked releases the rests', async (t) => {
  const { clock, streams, leaves } = setup();
  t.ok(leaves('a', 100));
  t.notOk(leaves('a', 1));
  const found: FollowedExchange[] = [];
  for (let i = 0; i < 3; i++) found.push(followed(streams.follow('a', () => found[i]?.done())));
  clock.advance(20_000);
  t.equal(streams.bytes, 0);
  t.ok(leaves('a', 100));
});

t.test('past a number of addresses those of others ask, until some have been quiet', async (t) => {
  const clock = new FakeClock();
  const streams = new EndedStreams(clock, { streamBytes: 1, totalBytes: 2 ** 30 });
  const leave = (address: number): boolean => streams.mayLeaveUnread(`2001:db8::${address}`, 1);
  for (let i = 0; i < MOST_ADDRESSES; i++) leave(i);
  t.same([leave(MOST_ADDRESSES), leave(0)], [false, true]);
  t.equal(streams.bytes, MOST_ADDRESSES + 1);
  clock.advance(20_000);
  t.ok(leave(MOST_ADDRESSES));
  t.equal(streams.bytes, 1);
});

t.test('past the total all addresses ask', async (t) => {
  const { clock, streams, leaves } = setup();
  t.same([leaves('a', 90), leaves('b', 90)], [true, true]);
  const [a, b] = ['a', 'b'].map((address) => followed(streams.follow(address, NOTHING)));
  t.notOk(leaves('c', 50));
  t.same([leaves('a', 1), leaves('b', 1)], [false, false]);
  clock.advance(20_000);
  t.equal(streams.bytes, 180);
  a?.done();
  t.equal(streams.bytes, 90);
  t.ok(leaves('c', 50));
  b?.done();
  t.equal(streams.bytes, 50);
});
