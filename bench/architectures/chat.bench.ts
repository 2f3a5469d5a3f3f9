/**
 * A growing chat over HTTP, beside llama-server, with a sliding-window, a hybrid and a llama model, on a CPU.
 *
 *     node dist/bench/architectures/chat.bench.js [native] [window | hybrid | embedded]
 *
 * Pairs go on where an earlier start was ended.
 */
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { converse, type Turn } from '../support/conversation.js';
import { childWith, peakMiB } from '../support/memory.js';
import { endless, endlessEmbedded } from '../support/models.js';
import { LlamaServer } from '../support/peers.js';
import { forget, inPieces } from '../support/pieces.js';
import { keep, rowsByModel, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const SEATS = 4;
const CONTEXT = 4096;
const PAIRS = 3;
const TURNS = 5;
const REPLY = 96;
/** Before each further question: a person reads the reply, and writes. */
const PAUSE_MS = 1000;
/** Of a question; the chat has some 3,000 tokens in the end. */
const WORDS = 395;
const FILES = {
  window: () => endless('window'),
  hybrid: () => endless('hybrid'),
  embedded: endlessEmbedded,
} as const;

const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
const name = build === 'native' ? 'architectures-chat-native' : 'architectures-chat';
const only = process.argv[3];

interface Pair {
  readonly ours: readonly Turn[];
  /** Without pauses. */
  readonly atOnce: readonly Turn[];
  /** Without pauses, with `prefixReuse: any`. */
  readonly any: readonly Turn[];
  readonly theirs: readonly Turn[];
  /** Without pauses. */
  readonly theirsAtOnce: readonly Turn[];
  readonly enginePeak: number;
  readonly theirPeak: number;
}

/** Questions that no other chat begins with. */
function questions(pair: number): string[] {
  const words = ['the', 'sea', 'and', 'sky', 'what', 'wind', 'over', 'water', 'when', 'night'];
  return Array.from(
    { length: TURNS },
    (_, turn) =>
      `${pair} ${Array.from({ length: WORDS }, (_, i) => words[(i * 7 + turn * 3 + pair + ((i * i) % 11)) % words.length]).join(' ')}`,
  );
}

/** One chat with each server, in processes of their own. */
async function pairOf(file: string, pair: number): Promise<Pair> {
  const ours = await withSidecar(file, 'auto', pair, PAUSE_MS);
  const atOnce = await withSidecar(file, 'auto', pair, 0);
  const any = await withSidecar(file, 'any', pair, 0);
  const theirs = await withLlamaServer(file, pair, PAUSE_MS);
  const theirsAtOnce = await withLlamaServer(file, pair, 0);
  return {
    ...{ ours: ours.turns, atOnce: atOnce.turns, any: any.turns, theirs: theirs.turns },
    ...{ theirsAtOnce: theirsAtOnce.turns, enginePeak: ours.peak, theirPeak: theirs.peak },
  };
}

interface Chat {
  readonly turns: readonly Turn[];
  /** The most memory of the process that computes, MiB. */
  readonly peak: number;
}

async function withLlamaServer(file: string, pair: number, pauseMs: number): Promise<Chat> {
  const more = ['-ngl', '0', '--jinja'];
  const server = await LlamaServer.start(file, { threads: 1, slots: SEATS, contextPerSlot: CONTEXT, more });
  const extras = { top_k: 0, top_p: 1, min_p: 0 };
  const target = { port: server.port, extras };
  await converse(target, CHAT, ['Hello'], 4);
  const turns = await converse(target, CHAT, questions(pair), REPLY, pauseMs);
  const peak = await peakMiB(server.pid);
  await server.close();
  return { turns, peak };
}

async function withSidecar(file: string, prefixReuse: 'auto' | 'any', pair: number, pauseMs: number): Promise<Chat> {
  const teardowns = new Teardowns();
  const model = { id: CHAT, kind: 'chat', file, seats: SEATS, contextPerSeat: CONTEXT, threads: 1, gpu: false };
  const config = { models: [{ ...model, prefixReuse }], development: { validateAnswers: false } };
  const sidecar = await Sidecar.start(teardowns, { config });
  const target = { port: sidecar.port, key: sidecar.key };
  await converse(target, CHAT, ['Hello'], 4);
  const turns = await converse(target, CHAT, questions(pair), REPLY, pauseMs);
  const peak = await peakMiB(await childWith(sidecar.pid, 'engine/main.js'));
  await teardowns.run();
  return { turns, peak };
}

const rows = await rowsByModel(name, ['window', 'hybrid', 'embedded'], only, async (model) => {
  const file = await FILES[model]();
  const pairs = await inPieces(`${name}-${model}`, PAIRS, (pair) => pairOf(file, pair));
  return Array.from({ length: TURNS }, (_, turn): Row => {
    type Side = 'ours' | 'atOnce' | 'any' | 'theirs' | 'theirsAtOnce';
    const of = (side: Side, field: keyof Turn): number => median(pairs.map((pair) => pair[side][turn]?.[field] ?? NaN));
    const ratio = (side: Side, peer: Side): number =>
      median(pairs.map((pair) => (pair[side][turn]?.ttftMs ?? NaN) / (pair[peer][turn]?.ttftMs ?? NaN)));
    return {
      model,
      turn: turn + 1,
      'prompt tokens': of('ours', 'promptTokens'),
      'reused, ours': of('ours', 'cachedTokens'),
      'reused, ours, at once': of('atOnce', 'cachedTokens'),
      'reused, ours, any': of('any', 'cachedTokens'),
      'reused, llama-server': of('theirs', 'cachedTokens'),
      'TTFT ms, ours': of('ours', 'ttftMs'),
      'TTFT ms, ours, at once': of('atOnce', 'ttftMs'),
      'TTFT ms, ours, any': of('any', 'ttftMs'),
      'TTFT ms, llama-server': of('theirs', 'ttftMs'),
      'TTFT ms, llama-server, at once': of('theirsAtOnce', 'ttftMs'),
      ratio: ratio('ours', 'theirs'),
      'ratio, at once': ratio('atOnce', 'theirsAtOnce'),
      'ratio, any': ratio('any', 'theirsAtOnce'),
      'peak MiB, engine': median(pairs.map(({ enginePeak }) => enginePeak)),
      'peak MiB, llama-server': median(pairs.map(({ theirPeak }) => theirPeak)),
    };
  });
});

await keep(name, {
  title: `A growing chat beside llama-server, ${build} addon`,
  about: [
    `One caller, ${TURNS} turns over HTTP, each with a question of some ${WORDS} words and a greedy reply of ${REPLY} tokens; ${SEATS} seats or slots of ${CONTEXT} tokens, 1 compute thread each, prompt reuse on. ${PAUSE_MS / 1000} s pass between a reply and the next question, as when a person reads it; none in the columns \`at once\` and \`any\`, which are compared with llama-server without pauses. Medians of ${PAIRS} pairs of processes. TTFT: from the request to the first text. Reused: cached_tokens of the reply.`,
    '`prefixReuse: auto`, the default, evaluates the last reply again, since it was evaluated one token at a time and its state would not equal that of a fresh prefill to the last bit. Where the state cannot be truncated (`window`, `hybrid`), the engine does so in the pause (`prefillAhead`). `any` goes on from the reply’s own state where its text becomes the same tokens again.',
    '`window` and `hybrid`: see architectures-limit-native.md. `embedded`: a llama model of 3 million weights.',
  ],
  rows,
});
for (const model of Object.keys(FILES)) await forget(`${name}-${model}`);
