import t from 'tap';
import type { AddonContext, AddonPages } from '../../../engine/llama/addon.js';
import { PAGE, PagedStates, PIECE } from '../../../engine/llama/paged-states.js';

const CONTEXT = { getSequenceKvCacheMaxPosition: () => 7 } as unknown as AddonContext;
const HELD = { length: 8, last: 7 };

/** Pages whose memory comes from a system that has so many bytes. `takes`: bytes of the next state. */
class Pages implements AddonPages {
  readonly found = true;
  readonly name = 'stub';
  readonly #states = new Map<number, number>();
  readonly grown: number[] = [];
  size = 0;
  left: number;
  takes = PAGE;
  saves = 0;
  isDisposed = false;
  /** Of the next state, before it is rounded up to pages. */
  readonly sizeOf = (): number => this.takes - 1;

  constructor(left: number) {
    this.left = left;
  }

  get free(): number {
    return this.size - [...this.#states.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  async grow(bytes: number): Promise<boolean> {
    this.grown.push(bytes);
    await Promise.resolve();
    if (bytes > this.left) return false;
    this.left -= bytes;
    this.size += bytes;
    return true;
  }

  save(): Promise<[number, number]> {
    this.saves += 1;
    if (this.takes > this.free) return Promise.resolve([0, this.takes]);
    this.#states.set(this.#states.size + 1, this.takes);
    return Promise.resolve([this.#states.size, this.takes]);
  }

  restore(): Promise<void> {
    return Promise.resolve();
  }

  drop(state: number): void {
    this.#states.set(state, 0);
  }

  dispose(): void {
    this.isDisposed = true;
  }
}

t.test('memory is pinned ahead of need, up to the limit, and kept', async (t) => {
  const pages = new Pages(Infinity);
  const states = new PagedStates(pages, 3 * PIECE - PAGE / 2, pages.sizeOf, () => undefined);
  t.equal(states.room, 3 * PIECE, 'all that there may be');
  await states.settled();
  t.same(pages.grown, [PIECE]);
  pages.takes = PIECE - PAGE;
  const first = await states.save(CONTEXT, 0, HELD);
  t.equal(first.bytes, PIECE - PAGE);
  await states.settled();
  t.same(pages.grown, [PIECE, PIECE, PIECE], 'for two more like it');
  t.equal(pages.size, 3 * PIECE);
  t.equal(states.room, 2 * PIECE + PAGE);
  first.dispose();
  t.equal(states.room, 3 * PIECE);
  await states.save(CONTEXT, 0, HELD);
  await states.settled();
  t.equal(pages.grown.length, 3, 'pages are used again');
  await states.dispose();
  t.ok(pages.isDisposed);
});

t.test('memory is freed after it is allocated', async (t) => {
  const pages = new Pages(Infinity);
  const states = new PagedStates(pages, 8 * PIECE, pages.sizeOf, () => undefined);
  pages.takes = 3 * PIECE;
  await t.rejects(states.save(CONTEXT, 0, HELD));
  const disposed = states.dispose();
  t.notOk(pages.isDisposed);
  await disposed;
  t.same([pages.size, pages.isDisposed], [PIECE * pages.grown.length, true]);
  t.ok(pages.size < 6 * PIECE, 'no more is allocated');
});

t.test('a state that finds no pages is not saved, and the next one finds some', async (t) => {
  const pages = new Pages(Infinity);
  const states = new PagedStates(pages, 8 * PIECE, pages.sizeOf, () => undefined);
  pages.takes = 2 * PIECE;
  await t.rejects(states.save(CONTEXT, 0, HELD), /no pages/);
  await states.settled();
  t.equal(pages.saves, 0, 'nothing was copied for it');
  t.equal(pages.free, 4 * PIECE);
  t.equal((await states.save(CONTEXT, 0, HELD)).length, 8);
});

t.test('no more is pinned than the system has to spare, and none once it refuses', async (t) => {
  let spare = PIECE + PAGE;
  const short = new Pages(Infinity);
  const some = new PagedStates(short, 8 * PIECE, short.sizeOf, () => spare);
  t.equal(some.room, PIECE + PAGE);
  await some.settled();
  spare = PAGE;
  t.equal(some.room, PIECE + PAGE);
  short.takes = PIECE;
  await some.save(CONTEXT, 0, HELD);
  await some.settled();
  t.same(short.grown.slice(0, 2), [PIECE, PAGE]);
  spare = 0;
  t.equal(some.room, short.free);

  const refused = new Pages(PIECE);
  const none = new PagedStates(refused, 8 * PIECE, refused.sizeOf, () => undefined);
  refused.takes = PIECE;
  await none.settled();
  await none.save(CONTEXT, 0, HELD);
  await none.settled();
  t.equal(none.room, 0, 'so that states are evicted for the next one');
  const asked = refused.grown.length;
  await t.rejects(none.save(CONTEXT, 0, HELD), /no pages/);
  await none.settled();
  t.equal(refused.grown.length, asked);
});

t.test('a state of another length than the sequence has is not restored', async (t) => {
  const pages = new Pages(Infinity);
  const states = new PagedStates(pages, PIECE, pages.sizeOf, () => undefined);
  await states.settled();
  const state = await states.save(CONTEXT, 0, { length: 9, last: 8 });
  await t.rejects(state.restore(CONTEXT, 1), /not restored/);
});
