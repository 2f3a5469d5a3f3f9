import fc from 'fast-check';
import t from 'tap';
import { place, type PlacementNeeds } from '../../../sidecar/admission/choose.js';
import { freeSeatsOf, type ReplicaState } from '../../../sidecar/admission/seats.js';

function replica(changes: Partial<ReplicaState> = {}): ReplicaState {
  return {
    seats: 4,
    contextPerSeat: 1000,
    up: true,
    busy: 0,
    kept: 0,
    lent: 0,
    grantedLast: 0,
    passedOver: 0,
    tokenTimeRatio: undefined,
    ...changes,
  };
}

const WANTS: PlacementNeeds = { seatTokens: 500, promptTokens: 400, seats: 1 };
const none: (at: number) => number = () => 0;

t.test('the replica of a request', async (t) => {
  const held =
    (...tokens: number[]) =>
    (at: number): number =>
      tokens[at] ?? 0;
  for (const [what, replicas, saved, expected, wants] of [
    ['nothing is free', [replica({ busy: 4 }), replica({ up: false })], none, -1],
    ['the only one that is up', [replica({ up: false }), replica({ busy: 3 })], none, 1],
    ['the less busy', [replica({ busy: 2 }), replica({ busy: 1 })], none, 1],
    ['the one that got no request for longest', [replica({ grantedLast: 7 }), replica({ grantedLast: 3 })], none, 1],
    ['to its past turns', [replica(), replica({ busy: 3 })], held(0, 384), 1],
    ['not for a small part of the prompt', [replica(), replica({ busy: 2 })], held(0, 128), 0],
    ['by the share of busy seats', [replica({ seats: 2, busy: 1 }), replica({ seats: 8, busy: 2 })], none, 1],
    ['the shortest seats that suffice', [replica({ contextPerSeat: 8000 }), replica({ busy: 3 })], none, 1],
    ['the long one if the short ones are busy', [replica({ contextPerSeat: 8000 }), replica({ busy: 4 })], none, 0],
    ['only where it fits', [replica({ contextPerSeat: 499 }), replica({ busy: 3 })], none, 1],
    ['where all its seats are free', [replica({ busy: 2 }), replica({ busy: 0 })], none, 1, { ...WANTS, seats: 4 }],
    [
      'not for one of several seats',
      [replica({ busy: 3 }), replica({ busy: 1 })],
      held(256),
      1,
      { ...WANTS, seats: 3 },
    ],
    ['the faster one', [replica({ tokenTimeRatio: 1.5 }), replica({ tokenTimeRatio: 0.5, busy: 2 })], none, 1],
    [
      'the slower one, if less busy by more',
      [replica({ tokenTimeRatio: 1 }), replica({ tokenTimeRatio: 0.5, busy: 3 })],
      none,
      0,
    ],
    ['a quarter slower is as fast', [replica({ tokenTimeRatio: 1.25 }), replica({ tokenTimeRatio: 1 })], none, 0],
    ['more than a quarter is not', [replica({ tokenTimeRatio: 1.26 }), replica({ tokenTimeRatio: 1 })], none, 1],
    [
      'to its past turns on a slower one',
      [replica({ tokenTimeRatio: 1.5 }), replica({ tokenTimeRatio: 0.5 })],
      held(384),
      0,
    ],
    [
      'one much slower counts as three quarters busier',
      [replica({ tokenTimeRatio: 9 }), replica({ tokenTimeRatio: 1, busy: 4, seats: 5 })],
      none,
      0,
    ],
    ['one whose speed is not known', [replica({ tokenTimeRatio: 1, busy: 1 }), replica()], none, 1],
    [
      'not by the speed of one that is full',
      [replica({ tokenTimeRatio: 1.5 }), replica({ busy: 1 }), replica({ tokenTimeRatio: 0.1, busy: 4 })],
      none,
      0,
    ],
    [
      'not by the speed of one with other seats',
      [replica({ tokenTimeRatio: 1.5 }), replica({ busy: 1 }), replica({ tokenTimeRatio: 0.1, contextPerSeat: 8000 })],
      none,
      0,
    ],
    [
      'a slower one again after 100 others',
      [replica({ tokenTimeRatio: 1.5, passedOver: 100 }), replica({ tokenTimeRatio: 0.5 })],
      none,
      0,
    ],
    ['not yet after 99', [replica({ tokenTimeRatio: 1.5, passedOver: 99 }), replica({ tokenTimeRatio: 0.5 })], none, 1],
    ['no prompt', [replica(), replica()], held(64, 64), 0, { ...WANTS, promptTokens: 0 }],
  ] as const satisfies readonly (readonly [string, readonly ReplicaState[], typeof none, number, PlacementNeeds?])[]) {
    t.equal(place(replicas, wants ?? WANTS, saved), expected, what);
  }
});

t.test('prefixes are looked up only if there is a choice', async (t) => {
  const asked: number[] = [];
  const ask = (at: number): number => asked.push(at);
  place([replica()], WANTS, ask);
  place([replica(), replica({ busy: 4 }), replica({ contextPerSeat: 2000 })], WANTS, ask);
  t.strictSame(asked, []);
  place([replica(), replica({ busy: 4 }), replica()], WANTS, ask);
  t.strictSame(asked, [0, 2]);
});

t.test('a request is placed if and only if a seat is free for it, on the shortest that suffices', async () => {
  const replicas = fc.array(
    fc.record({
      seats: fc.integer({ min: 1, max: 4 }),
      contextPerSeat: fc.constantFrom(500, 1000, 4000),
      up: fc.boolean(),
      busy: fc.nat({ max: 5 }),
      kept: fc.nat({ max: 2 }),
      lent: fc.nat({ max: 2 }),
      grantedLast: fc.nat({ max: 9 }),
      passedOver: fc.nat({ max: 200 }),
      tokenTimeRatio: fc.option(fc.double({ min: 0, max: 100, noNaN: true }), { nil: undefined }),
    }),
    { minLength: 1, maxLength: 6 },
  );
  const wants = fc.record({
    seatTokens: fc.constantFrom(1, 500, 501, 4000, 4001),
    promptTokens: fc.nat({ max: 4000 }),
    seats: fc.integer({ min: 1, max: 4 }),
  });
  fc.assert(
    fc.property(replicas, wants, fc.array(fc.nat({ max: 4000 }), { minLength: 6 }), (all, wanted, held) => {
      const chosen = place(all, wanted, (at) => held[at] ?? 0);
      const fit = all.filter((one) => freeSeatsOf(one) > 0 && one.contextPerSeat >= wanted.seatTokens);
      if (chosen < 0) return fit.length === 0;
      const found = all[chosen];
      return (
        found !== undefined && fit.includes(found) && fit.every((one) => one.contextPerSeat >= found.contextPerSeat)
      );
    }),
  );
});
