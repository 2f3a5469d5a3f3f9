import fc from 'fast-check';
import t from 'tap';
import { NO_CACHE, PROTOCOL_VERSION as v } from '../../../engine/protocol/messages.js';
import { readMessage } from '../../../sidecar/engine-client/wire.js';

const facts = {
  seats: 1,
  contextPerSeat: 8,
  vocabulary: 2,
  weightVersion: 'w',
  threads: 1,
  gpu: false,
};
const tokens = { running: 7, kept: 0 };
const call = { id: 1, kind: 'call', choice: 0, index: 0, name: 'f', arguments: '', tokens: 1 };
const piece = { id: 1, kind: 'piece', choice: 0, channel: 'content', text: 'x', tokens: 1 };
const finished = { id: 1, kind: 'finished', choice: 0, reason: 'length', completionTokens: 1, reasoningTokens: 0 };
const answer = { id: 1, kind: 'answer', question: 0, probabilities: Float64Array.of(0.5, 0.5), labelMass: 1 };
const state = { file: 3, inode: 4, bytes: 5, tokens: 6, ends: 0, changedAt: 7 };
const held = (more: object): unknown => ({
  v,
  kind: 'step',
  step: 1,
  outputs: [],
  held: [{ sequence: 0, hashes: Uint32Array.of(7), ...more }],
});
const step = (...outputs: unknown[]): unknown => ({ v, kind: 'step', step: 1, outputs, held: [] });

t.test('every message of the protocol is accepted, as the same object', async (t) => {
  const messages = [
    { v, kind: 'ready', facts },
    { v, kind: 'ready', facts: { ...facts, gpu: 'cuda' } },
    { v, kind: 'unable', reason: 'no such file', mayMend: false },
    { v, kind: 'heartbeat', step: 0, live: 0, tokens, cache: NO_CACHE },
    { v, kind: 'capacity', seats: 1, unconfirmed: 0 },
    { v, kind: 'ready', facts: { ...facts, confirmsCancels: true } },
    step(),
    step({ id: 1, kind: 'started', cachedTokens: 0 }, piece, call, { ...call, name: undefined }, finished, answer),
    step({ ...finished, matchedStop: 'END' }, { ...finished, matchedStop: 2 }),
    step({ ...finished, draftedTokens: 7, acceptedTokens: 0 }),
    step({ id: 1, kind: 'seatFreed' }),
    { v, kind: 'ready', facts: { ...facts, states: 'w f16' } },
    held({}),
    held({ state }),
    step({ id: 1, kind: 'done' }, { id: 2, kind: 'failed', reason: 'no room' }),
  ];
  for (const message of messages) t.equal(readMessage(message), message);
});

t.test('anything else is a violation', async (t) => {
  const cases: [unknown, string][] = [
    [undefined, 'not-a-message'],
    [null, 'not-a-message'],
    ['ready', 'not-a-message'],
    [{ kind: 'heartbeat', step: 0, live: 0, tokens, cache: NO_CACHE }, 'version'],
    [{ v: v + 1, kind: 'ready', facts }, 'version'],
    [{ v, kind: 'other' }, 'malformed'],
    [{ v, kind: 'ready' }, 'malformed'],
    [{ v, kind: 'ready', facts: { ...facts, seats: 0 } }, 'malformed'],
    [{ v, kind: 'ready', facts: { ...facts, tokens: 0 } }, 'malformed'],
    [{ v, kind: 'heartbeat', step: -1, live: 0, tokens, cache: NO_CACHE }, 'malformed'],
    [{ v, kind: 'heartbeat', step: 0, live: 0, cache: NO_CACHE }, 'malformed'],
    [{ v, kind: 'heartbeat', step: 0, live: 0, tokens }, 'malformed'],
    [{ v, kind: 'heartbeat', step: 0, live: 0, tokens, cache: { ...NO_CACHE, evictions: {} } }, 'malformed'],
    [{ v, kind: 'heartbeat', step: 0, live: 0, tokens: { running: 1, kept: -1 }, cache: NO_CACHE }, 'malformed'],
    [{ v, kind: 'ready', facts: { ...facts, states: 1 } }, 'malformed'],
    [held({ state: 1 }), 'malformed'],
    [held({ state: { ...state, inode: -1 } }), 'malformed'],
    [held({ state: { ...state, changedAt: undefined } }), 'malformed'],
    [{ v, kind: 'capacity', seats: 0, unconfirmed: 0 }, 'malformed'],
    [{ v, kind: 'ready', facts: { ...facts, confirmsCancels: 'yes' } }, 'malformed'],
    [{ v, kind: 'ready', facts: { ...facts, warnings: [1] } }, 'malformed'],
    [{ v, kind: 'serverProblem' }, 'malformed'],
    [{ v, kind: 'step', step: 1 }, 'malformed'],
    [{ v, kind: 'step', step: 1, outputs: [] }, 'malformed'],
    [{ v, kind: 'step', step: 1, outputs: [], held: [{ sequence: 0, hashes: [7] }] }, 'malformed'],
    [{ v, kind: 'step', step: 1, outputs: [], held: [{ sequence: -1, hashes: Uint32Array.of(7) }] }, 'malformed'],
    [step(null), 'malformed'],
    [step({ id: 1, kind: 'other' }), 'malformed'],
    [step({ ...call, index: -1 }), 'malformed'],
    [step({ ...call, name: 1 }), 'malformed'],
    [step({ ...call, arguments: undefined }), 'malformed'],
    [step({ ...call, tokens: 0.5 }), 'malformed'],
    [step({ ...call, choice: '0' }), 'malformed'],
    [step({ ...piece, id: 0.5 }), 'malformed'],
    [step({ ...piece, text: 1 }), 'malformed'],
    [step({ ...piece, channel: 'thought' }), 'malformed'],
    [step({ ...finished, reason: 'done' }), 'malformed'],
    [step({ ...finished, matchedStop: null }), 'malformed'],
    [step({ ...finished, draftedTokens: -1 }), 'malformed'],
    [step({ ...finished, acceptedTokens: '1' }), 'malformed'],
    [step({ ...answer, probabilities: [0.5, 0.5] }), 'malformed'],
    [step({ ...answer, probabilities: Float64Array.of(NaN, 1) }), 'malformed'],
    [step({ ...answer, labelMass: NaN }), 'malformed'],
  ];
  for (const [message, violation] of cases) t.same(readMessage(message), { violation });
});

t.test('no value makes it throw', async () => {
  fc.assert(
    fc.property(fc.anything({ withTypedArray: true, withNullPrototype: true }), (raw) => {
      readMessage(raw);
      readMessage(typeof raw === 'object' ? { ...raw, v } : raw);
      readMessage({ v, kind: 'step', step: 1, outputs: [raw], held: [raw] });
    }),
  );
});
