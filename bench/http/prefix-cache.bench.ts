/**
 * Conversations that continue, more of them than seats, beside llama-server with `--cache-ram` of the same size. node
 * dist/bench/http/prefix-cache.bench.js
 */
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { ask, type ChatTarget, type Turn } from '../support/conversation.js';
import { endlessEmbedded } from '../support/models.js';
import { LlamaServer } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const CONVERSATIONS = 80;
const TURNS = 6;
const SEATS = 8;
const CONTEXT = 2048;
const REPLY = 16;
/** Of a question. */
const WORDS = 60;
const MIB = 2 ** 20;
/** All of the conversations, by a run with more; and a third of it. */
const MEMORY = { 'for all': 384 * MIB, 'for a third': 64 * MIB } as const;
const VOCABULARY = ['the', 'sea', 'and', 'sky', 'what', 'wind', 'over', 'water', 'when', 'night'];

const file = await endlessEmbedded();

function question(conversation: number, turn: number): string {
  const words = Array.from(
    { length: WORDS },
    (_, i) => VOCABULARY[(i * 7 + turn * 3 + conversation + ((i * i) % 11)) % VOCABULARY.length],
  );
  return `${conversation} ${turn} ${words.join(' ')}`;
}

interface Served {
  readonly turns: readonly (readonly Turn[])[];
  readonly seconds: number;
}

/** Every conversation's turn, then every one's next turn, as many at once as there are seats. */
async function serve(target: ChatTarget, comeBack: boolean): Promise<Served> {
  const turns: Turn[][] = Array.from({ length: CONVERSATIONS }, () => []);
  const messages = turns.map((): { role: string; content: string }[] => []);
  const from = performance.now();
  for (let turn = 0; turn < TURNS; turn += 1) {
    // Another order each turn, the same for each server.
    const order = turns.map((_, at) => (at * 37 + turn * 11) % CONVERSATIONS);
    const next = order.values();
    const caller = async (): Promise<void> => {
      for (const at of next) {
        const chat = comeBack ? (messages[at] ?? []) : [];
        chat.push({ role: 'user', content: question(comeBack ? at : at + CONVERSATIONS * (turn + 1), turn) });
        const asked = await ask(target, { model: CHAT, messages: chat, max_tokens: REPLY, temperature: 0 });
        chat.push({ role: 'assistant', content: asked.reply });
        turns[at]?.push(asked.turn);
      }
    };
    await Promise.all(Array.from({ length: SEATS }, caller));
  }
  return { turns, seconds: (performance.now() - from) / 1000 };
}

async function ours(bytes: number, comeBack = true): Promise<Served> {
  const teardowns = new Teardowns();
  const model = { id: CHAT, kind: 'chat', file, seats: SEATS, contextPerSeat: CONTEXT, threads: 1, gpu: false };
  const config = { models: [{ ...model, prefixCache: { bytes } }], development: { validateAnswers: false } };
  const sidecar = await Sidecar.start(teardowns, { config });
  const served = await serve({ port: sidecar.port, key: sidecar.key }, comeBack);
  await teardowns.run();
  return served;
}

async function theirs(bytes: number): Promise<Served> {
  const server = await LlamaServer.start(file, {
    threads: 1,
    slots: SEATS,
    contextPerSlot: CONTEXT,
    more: ['-ngl', '0', '--jinja', '--cache-ram', String(bytes / MIB)],
  });
  const served = await serve({ port: server.port, extras: { top_k: 0, top_p: 1, min_p: 0 } }, true);
  await server.close();
  return served;
}

function row(server: string, memory: string, { turns, seconds }: Served): Row {
  const all = turns.flat();
  const sum = (of: (turn: Turn) => number, some: readonly Turn[] = all): number =>
    some.reduce((total, turn) => total + of(turn), 0);
  // What a conversation’s prompt has in common with the previous one: all of that.
  const most = sum(
    (turn) => turn.promptTokens,
    turns.flatMap((each) => each.slice(0, -1)),
  );
  const later = turns.flatMap((each) => each.slice(1));
  const restored = turns.flatMap((each) =>
    each.slice(1).filter(({ cachedTokens }, before) => cachedTokens >= (each[before]?.promptTokens ?? NaN) / 2),
  );
  return {
    server,
    memory,
    'prompt tokens': sum(({ promptTokens }) => promptTokens),
    'not evaluated, %': (100 * sum(({ cachedTokens }) => cachedTokens)) / sum(({ promptTokens }) => promptTokens),
    'of the most, %': (100 * sum(({ cachedTokens }) => cachedTokens)) / most,
    'TTFT p50 of later turns, ms': median(later.map(({ ttftMs }) => ttftMs)),
    'restored turns': restored.length,
    ...(restored.length > 0 && { 'TTFT p50 of restored turns, ms': median(restored.map(({ ttftMs }) => ttftMs)) }),
    'all turns, s': seconds,
  };
}

const rows: Row[] = [];
for (const [memory, bytes] of Object.entries(MEMORY)) {
  rows.push(row('ours', memory, await ours(bytes)), row('llama-server', memory, await theirs(bytes)));
}
rows.push(row('ours', 'none', await ours(0)), row('llama-server', 'none', await theirs(0)));
for (const bytes of [MEMORY['for all'], 0, MEMORY['for all'], 0]) {
  const served = await ours(bytes, false);
  rows.push({
    server: 'ours, no turn comes back',
    memory: bytes === 0 ? 'none' : 'for all',
    'all turns, s': served.seconds,
  });
}

await keep('prefix-cache', {
  title: 'Conversations that come back, beside llama-server with --cache-ram',
  about: [
    `${CONVERSATIONS} conversations of ${TURNS} turns over HTTP on ${SEATS} seats or slots, as many callers, 1 compute thread: every conversation's turn in one order, then every one's next turn in another. A question of some ${WORDS} words, a greedy reply of ${REPLY} tokens, a llama model of 3 million weights. Memory: \`prefixCache.bytes\` and \`--cache-ram\`. Of the most: of all tokens of each conversation's prompt before. Restored: a later turn that reuses at least half of the prompt before, from memory or from a sequence. The last rows: all prompts are new.`,
  ],
  rows,
});
