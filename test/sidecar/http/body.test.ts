import fc from 'fast-check';
import t from 'tap';
import { Body, BodyBudget, BodyReader, type BodyResult } from '../../../sidecar/http/body.js';
import { readForm } from '../../../sidecar/http/multipart.js';
import { postHead } from '../../support/request-head.js';
import { plainText } from '../../support/texts.js';

/** A reader whose socket and clock the test controls. */
function setup({
  declared,
  cap = 1 << 20,
  budget = new BodyBudget(cap, 0),
}: { declared?: number; cap?: number; budget?: BodyBudget } = {}) {
  const time = { ms: 42 };
  const calls: string[] = [];
  const timers = new Set<() => void>();
  const source = {
    pause: () => calls.push('pause'),
    resume: () => calls.push('resume'),
    close: () => {
      calls.push('close');
      reader.abandon();
    },
  };
  const clock = {
    now: () => time.ms,
    after: (_ms: number, fn: () => void) => {
      timers.add(fn);
      return () => timers.delete(fn);
    },
  };
  const reader = new BodyReader(source, declared, budget, clock, 1000);
  const push = (text: string, last = false): void => {
    const { buffer } = new TextEncoder().encode(text);
    reader.push(buffer, last);
    // uWS frees the memory.
    new Uint8Array(buffer).fill(0);
  };
  return { reader, push, calls, timers, budget, time };
}

function text(body: BodyResult): string {
  return body.kind === 'body' ? Buffer.from(body.bytes ?? []).toString() : body.kind;
}

t.test('chunks are copied and joined, requested before or after', async (t) => {
  for (const early of [true, false]) {
    const { reader, push, budget, timers } = setup();
    const asked = early ? reader.read(10) : undefined;
    push('ab');
    push('');
    push('cdé');
    push('', true);
    const body = await (asked ?? reader.read(10));
    t.equal(text(body), 'abcdé');
    t.match(body, { receivedAt: 42 });
    t.equal(timers.size, 0);
    t.ok(budget.held >= 6);
    if (body.kind === 'body') {
      body.free();
      body.free();
    }
    t.equal(budget.held, 0);
    reader.close();
    t.equal(budget.held, 0);
  }
});

t.test('a chunked body that does not go on is refused', async (t) => {
  const { reader, push, timers, time } = setup();
  const passed = (ms: number): void => {
    time.ms += ms;
    const [look] = timers;
    timers.clear();
    look?.();
  };
  const read = reader.read(10);
  time.ms += 1;
  push('');
  passed(5999);
  t.equal(timers.size, 1, 'the last chunk came less than six seconds ago');
  passed(1);
  t.equal((await read).kind, 'silent');
  const sized = setup({ declared: 5 });
  void sized.reader.read(10);
  t.equal(sized.timers.size, 0, 'the library closes one with a length that is slow');
});

t.test('any split gives the same bytes, and memory is charged and released', async (t) => {
  const property = fc.asyncProperty(
    fc.array(plainText({ maxLength: 300 }), { minLength: 1, maxLength: 50 }),
    fc.boolean(),
    async (pieces, sized) => {
      const whole = pieces.join('');
      const { reader, push, budget } = setup(sized ? { declared: Buffer.byteLength(whole) } : {});
      for (const piece of pieces) push(piece);
      push('', true);
      const read = text(await reader.read(1 << 20));
      const fits = budget.held >= Buffer.byteLength(whole) && budget.held <= 2 * Buffer.byteLength(whole);
      reader.close();
      return read === whole && fits && budget.held === 0;
    },
  );
  await t.resolves(fc.assert(property));
});

t.test(
  'of a body that is read as it arrives a part waits at most, however much comes while it is paused',
  async (t) => {
    const length = 512 << 20;
    const { reader, budget, calls, timers } = setup({ declared: length, cap: length });
    const chunk = (fill: number): void => {
      const bytes = new Uint8Array(300_000).fill(fill);
      reader.push(bytes.buffer, false);
      bytes.fill(0);
    };
    chunk(1);
    t.same(calls, ['pause'], 'before it is asked for');
    let next = await reader.next(length);
    t.same(next, new Uint8Array(300_000).fill(1));
    const waiting = reader.next(length);
    t.same(calls, ['pause', 'resume']);
    chunk(2);
    next = await waiting;
    t.same(next, new Uint8Array(300_000).fill(2));
    chunk(3);
    t.same(calls, ['pause', 'resume'], 'not while less than a part waits');
    chunk(3);
    t.same(calls, ['pause', 'resume', 'pause']);
    const free = budget.held;
    let chunks = 0;
    for (; budget.held > 0 && chunks < 1000; chunks += 1) chunk(3);
    t.ok(free < 2 << 20 && chunks * 300_000 > 18 << 20 && chunks * 300_000 < 21 << 20, `${free}, ${chunks}`);
    t.same(await reader.next(length), { kind: 'no-room' });
    t.same(calls, ['pause', 'resume', 'pause', 'resume'], 'the rest is not kept');
    t.equal(timers.size, 0);
  },
);

t.test(
  'of what a caller sends in one turn each part has one of its own, until too much waits: then all has the same',
  async (t) => {
    const length = 512 << 20;
    const { reader } = setup({ declared: length, cap: length });
    let parts = 0;
    const read = async (): Promise<void> => {
      while ((await reader.next(length)) instanceof Uint8Array) parts += 1;
    };
    const reading = read();
    const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    for (const [sent, inOneTurn] of [
      [22, false],
      [32, true],
      [22, false],
    ] as const) {
      parts = 0;
      for (let i = 0; i < sent; i += 1) reader.push(new ArrayBuffer(512 << 10), false);
      let turns = 0;
      for (; parts < sent && turns < 100; turns += 1) await turn();
      t.equal(parts, sent);
      t.ok(inOneTurn ? turns <= 2 : turns >= sent - 1, `${sent} parts in ${turns} turns`);
    }
    reader.close();
    await reading;
  },
);

t.test('the rate that uWS asks of a connection is asked of a body that is read as it arrives, too', async (t) => {
  const { reader, push, calls } = setup({ declared: 100 });
  for (const byte of ['a', 'b', 'c', 'd']) {
    const isAwaited = byte < 'c';
    const early = isAwaited ? reader.next(100) : undefined;
    push(byte);
    t.same(await (early ?? reader.next(100)), new TextEncoder().encode(byte));
  }
  t.same(calls, [], 'to go on after a pause would begin its time anew');
});

t.test('what waited of a body that is read as it arrives is not counted to its end', async (t) => {
  const length = 512 << 20;
  const PART = 512 << 10;
  const { reader, budget } = setup({ declared: length, cap: length });
  const first = reader.next(length);
  for (let i = 0; i < 30; i += 1) reader.push(new ArrayBuffer(PART), false);
  await first;
  const most = budget.held;
  for (let i = 1; i < 30; i += 1) await reader.next(length);
  t.equal(most, 30 * PART);
  t.ok(budget.held > 0 && budget.held <= 4 << 20, `${budget.held} bytes`);
  reader.close();
  t.equal(budget.held, 0);
});

t.test('of a form whose caller leaves nothing is taken once it has ended, and the rest is overwritten', async (t) => {
  const head = '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n';
  const sent = Buffer.from(`${head}${'x'.repeat((1 << 20) + 1000)}`);
  const parts = [0, 1, 2].map((i) =>
    Uint8Array.from(sent.subarray((i * sent.length) / 3, ((i + 1) * sent.length) / 3)),
  );
  const coming = [...parts];
  const receive = (): Promise<Uint8Array | { kind: 'gone' }> => Promise.resolve(coming.shift() ?? { kind: 'gone' });
  const happened: string[] = [];
  const exchange = { head: postHead(() => 'multipart/form-data; boundary=b'), receive };
  const append = ({ length }: Uint8Array): undefined => void happened.push(`${length} bytes are taken`);
  const form = await readForm(exchange, 4 << 20, { append, pending: undefined });
  happened.push(form.kind);
  await new Promise((resolve) => setImmediate(resolve));
  t.same(happened, ['1048576 bytes are taken', 'gone']);
  t.ok(
    parts[2]?.every((byte) => byte === 0),
    'with what was not taken',
  );
});

t.test('of a form that comes in small parts nothing is left in them, and each byte is passed on once', async (t) => {
  const content = Array.from({ length: 30_000 }, (_, i) => `xylophone ${i}\r\n`).join('');
  const head = '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n';
  const sent = Buffer.from(`${head}${content}\r\n--b--\r\n`);
  for (const length of [700, 5000, 20_000]) {
    const parts = Array.from({ length: Math.ceil(sent.length / length) }, (_, i) =>
      Uint8Array.from(sent.subarray(i * length, (i + 1) * length)),
    );
    const coming = [...parts];
    const receive = (): Promise<Uint8Array | { kind: 'complete' }> =>
      Promise.resolve(coming.shift() ?? { kind: 'complete' });
    let taken = '';
    const append = (piece: Uint8Array): undefined => void (taken += Buffer.from(piece).toString('latin1'));
    const exchange = { head: postHead(() => 'multipart/form-data; boundary=b'), receive };
    t.match(await readForm(exchange, 4 << 20, { append, pending: undefined }), { kind: 'form', filename: 'f' });
    t.ok(taken === content, `${length} bytes each`);
    t.notOk(parts.some((part) => Buffer.from(part.buffer).includes('xylo')));
  }
});

t.test('too large: by its declared length, while reading, or before it was requested', async (t) => {
  const declared = setup({ declared: 11 });
  t.same(await declared.reader.read(10), { kind: 'too-large' });

  const reading = setup();
  const asked = reading.reader.read(3);
  reading.push('ab');
  reading.push('cd');
  t.same(await asked, { kind: 'too-large' });
  t.equal(reading.budget.held, 0, 'memory is freed');
  reading.push('ef');
  t.equal(reading.budget.held, 0, 'and nothing more is kept');
  t.equal(reading.timers.size, 0);
  t.notOk(reading.reader.complete);
  reading.push('', true);
  t.ok(reading.reader.complete, 'but its end is noticed');

  const before = setup();
  before.push('abcd', true);
  t.same(await before.reader.read(3), { kind: 'too-large' });
  t.equal(before.budget.held, 0);

  const exact = setup({ declared: 4 });
  exact.push('abcd', true);
  t.equal(text(await exact.reader.read(4)), 'abcd');
});

t.test('no room: other bodies’ memory counts', async (t) => {
  const { reader, push, budget } = setup({ cap: 10 });
  t.ok(budget.take(7, 7));
  const asked = reader.read(100);
  push('abc');
  push('d', true);
  t.same(await asked, { kind: 'no-room' });
  t.equal(budget.held, 7);
});

t.test(
  'a spare body is freed where another one needs its room, the oldest first, and only if that makes enough room',
  async (t) => {
    const budget = new BodyBudget(10, 0);
    const make = (bytes: number): Body => {
      t.ok(budget.take(bytes, bytes));
      return new Body(new Uint8Array(bytes), bytes, 0, budget);
    };
    const [first, second, needed] = [make(3), make(3), make(2)];
    first.setSpare();
    second.setSpare();
    t.notOk(budget.take(9, 9));
    t.same([first.bytes?.length, second.bytes?.length, budget.held], [3, 3, 8], 'none is freed in vain');
    t.ok(budget.take(2, 2), 'there is room');
    t.ok(first.setNeeded(), 'and the first is still there');
    first.setSpare();
    t.ok(budget.take(1, 1));
    t.same(
      [first.bytes?.length, second.bytes, budget.held],
      [3, undefined, 8],
      'the one that was spare for longer is freed',
    );
    t.notOk(second.setNeeded());
    t.equal(second.length, 3);
    first.countDerived(2);
    t.equal(budget.held, 10, 'what was made of it counts too');
    first.countDerived(5);
    t.same([first.bytes, budget.held], [undefined, 10], 'in place of it, if need be');
    first.setSpare();
    first.free();
    first.free();
    needed.free();
    t.equal(budget.held, 3, 'and is freed with it');
    first.countDerived(5);
    t.equal(budget.held, 3, 'for good');
  },
);

t.test('long bodies leave the reserved part to short ones', async (t) => {
  const MIB = 1 << 20;
  const budget = new BodyBudget(5 * MIB, 2 * MIB);
  const all: BodyReader[] = [];
  const bring = async (bytes: number, sized: boolean): Promise<string> => {
    const { reader, push } = setup({ budget, ...(sized && { declared: bytes }) });
    all.push(reader);
    for (let left = bytes; left > 0; left -= MIB / 2) push('x'.repeat(Math.min(left, MIB / 2)));
    push('', true);
    return (await reader.read(4 * MIB)).kind;
  };
  t.equal(await bring(2 * MIB, true), 'body');
  t.equal(await bring(MIB, true), 'body');
  t.equal(await bring(MIB + 1, true), 'no-room', 'its declared length exceeds what is left');
  const early = setup({ budget, declared: MIB + 1 });
  early.push('x');
  t.equal(budget.held, 3 * MIB, 'and refused with its first byte');
  t.equal(await bring(MIB + 1, false), 'no-room', 'grown too long for it');
  t.equal(budget.held, 3 * MIB);
  t.equal(await bring(MIB, true), 'body');
  t.equal(await bring(MIB, false), 'body');
  t.equal(await bring(1, true), 'no-room', 'and then there is none');
  for (const reader of all) reader.close();
  t.equal(budget.held, 0);
  t.equal(await bring(3 * MIB, true), 'body');
});

t.test('a caller that disconnects', async (t) => {
  const { reader, push, calls, timers, budget } = setup();
  push('x'.repeat(70_000));
  reader.abandon();
  t.same(await reader.read(1 << 20), { kind: 'gone' });
  t.same(calls, ['pause'], 'its socket is not used');
  t.equal(timers.size, 0);
  t.equal(budget.held, 0);
  push('x', true);
  t.equal(budget.held, 0);

  const asked = setup();
  const body = asked.reader.read(10);
  asked.reader.close();
  t.same(await body, { kind: 'gone' });
});

t.test('too slow: the connection is closed', async (t) => {
  const { reader, push, calls, timers } = setup({ declared: 10 });
  const asked = reader.read(10);
  push('a');
  push('b');
  t.equal(timers.size, 1, 'one timer for the whole body');
  for (const fire of timers) fire();
  t.same(calls, ['close']);
  t.same(await asked, { kind: 'gone' });
});

t.test('paused until requested', async (t) => {
  const { reader, push, calls } = setup();
  push('x'.repeat(65_536));
  t.same(calls, []);
  push('x');
  push('x');
  t.same(calls, ['pause']);
  const asked = reader.read(1 << 20);
  t.same(calls, ['pause', 'resume']);
  push('x'.repeat(65_536), true);
  t.equal(text(await asked).length, 2 * 65_536 + 2);
  t.same(calls, ['pause', 'resume']);

  const refused = setup();
  refused.push('x'.repeat(70_000));
  refused.reader.close();
  t.same(refused.calls, ['pause', 'resume'], 'a reply resumes the rest');
  refused.reader.close();
  t.same(refused.calls, ['pause', 'resume']);

  const ended = setup();
  ended.push('x'.repeat(70_000));
  ended.push('', true);
  t.same(ended.calls, ['pause', 'resume'], 'so does the end, so that a disconnect is noticed');
});
