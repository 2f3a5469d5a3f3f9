import t from 'tap';
import { RemoteHarness } from '../../support/remote-harness.js';
import { KINDS, MISBEHAVIOURS } from '../../support/misbehaviours.js';
import type { StubKind } from '../../support/server-stub.js';

/** The outputs of a good reply, independent of how the stub’s pieces are split. */
const GOOD: Readonly<Record<StubKind, RegExp>> = {
  'llama-server': /^started:1 (a ?b ?c) stop:4 cached:1 done$/,
  vllm: /^started:0 (a ?b ?c) (stop:4 cached:1|cached:1 stop:4) done$/,
  sglang: /^started:1 (a ?b ?c) stop:4 cached:1 done$/,
};

for (const kind of KINDS) {
  t.test(`${kind}: each way to answer has the right outcome, and the server is used again`, async (t) => {
    const harness = await RemoteHarness.start(t, kind, { seats: 64 });
    for (const { name, kinds = KINDS, does, ends } of MISBEHAVIOURS) {
      if (!kinds.includes(kind)) continue;
      harness.stub.misbehaviour = does;
      const end = await harness.ended(harness.generate());
      t.match(end, ends === 'good' ? GOOD[kind] : ends, name);
      t.notMatch(end, /PROMPT/, 'without the server’s own text');
    }
    harness.stub.misbehaviour = {};
    t.match(await harness.ended(harness.generate()), GOOD[kind], 'afterwards');
    t.equal(harness.loop.live, 0);
    t.strictSame(harness.loop.held, { running: 0, kept: 0 });
  });

  t.test(`${kind}: labels have their share of the whole vocabulary, or the question fails`, async (t) => {
    const harness = await RemoteHarness.start(t, kind);
    const [started, mass, ...rest] = (await harness.ended(harness.score())).split(' ');
    t.equal(mass, 'mass:0.750');
    t.strictSame(rest, [started?.replace('started', 'cached'), 'done'], 'of all its questions');
    for (const scores of [
      ['x', 0.5],
      [null, 0.5],
    ] as const) {
      harness.stub.misbehaviour = { scores };
      t.match(await harness.ended(harness.score()), /^failed\(a label without a probability\)$/);
    }
    harness.stub.misbehaviour = { status: 503 };
    t.equal(await harness.ended(harness.score()), 'returned');
    harness.stub.misbehaviour = { resetAfter: 0 };
    t.equal(await harness.ended(harness.score()), 'returned');
  });
}
