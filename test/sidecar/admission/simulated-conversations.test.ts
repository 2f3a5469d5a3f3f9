/** What placement must reach with four replicas (docs/admission.md), on stand-in engines in simulated time. */
import t from 'tap';
import { talk, type Talks } from '../../support/simulated-conversations.js';

const TALKS = { conversations: 64, turns: 8, thinkMs: 8000, tokenMs: 0.5, stepMs: 20, loadFactor: 2, seed: 1 } as const;
const FOUR = [16, 16, 16, 16];

t.test('conversations reuse nearly what they would on one engine, and more than in turn', async (t) => {
  const of = async (more: Pick<Talks, 'replicas' | 'by'>): Promise<number> =>
    (await talk({ ...TALKS, ...more })).reused;
  const one = await of({ replicas: [64], by: 'queue' });
  const queue = await of({ replicas: FOUR, by: 'queue' });
  const turn = await of({ replicas: FOUR, by: 'round-robin' });
  t.ok(queue >= 0.95 * one, `${queue} of ${one}`);
  t.ok(turn < 0.8 * queue, `in turn: ${turn}`);
});

t.test('where one replica is three times as slow, what the queue learns of it shortens the mean reply', async (t) => {
  const meanMs = async (observed: boolean): Promise<number> => {
    const { replyMs } = await talk({ ...TALKS, replicas: FOUR, by: 'queue', slower: [1, 1, 1, 3], observed });
    return replyMs.reduce((sum, ms) => sum + ms, 0) / replyMs.length;
  };
  const [learned, not] = [await meanMs(true), await meanMs(false)];
  t.ok(learned < 0.9 * not, `${learned} of ${not} ms`);
});

t.test('where all are equally fast, but slowed much by their load, it costs no reuse', async (t) => {
  const reused = async (observed: boolean): Promise<number> =>
    (await talk({ ...TALKS, replicas: FOUR, by: 'queue', loadFactor: 6, observed })).reused;
  const [learned, not] = [await reused(true), await reused(false)];
  t.ok(learned > not - 0.01, `${learned} of ${not}`);
});
