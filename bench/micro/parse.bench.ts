/**
 * Parse and validate against JSON.parse alone: `node dist/bench/micro/parse.bench.js`, part of `make bench`. The size up to
 * which bodies are parsed on the event loop (`bodies.inlineBytes`) follows from it.
 */
import { parseBody } from '../../sidecar/contracts/parse.js';
import type { ModelRoute } from '../../sidecar/contracts/requests.js';
import { keep, type Row } from '../support/results.js';

const BATCH_MS = 100;

function chatBody(bytes: number, message: string): string {
  const one = { role: 'user', content: message };
  const count = Math.max(1, Math.floor(bytes / (JSON.stringify(one).length + 1)));
  return JSON.stringify({ model: 'chat-1', temperature: 0.7, stream: true, messages: Array(count).fill(one) });
}

function toolsBody(bytes: number): string {
  const property = {
    type: 'object',
    description: 'what it is',
    properties: { a: { type: 'string', enum: ['x', 'y'] } },
  };
  const properties = Object.fromEntries(
    Array.from({ length: Math.floor(bytes / 130) }, (_, i) => [`property${i}`, property]),
  );
  const parameters = { type: 'object', properties };
  return JSON.stringify({
    model: 'chat-1',
    messages: [{ role: 'user', content: 'x' }],
    tools: [{ type: 'function', function: { name: 'f', parameters } }],
  });
}

function questionsBody(): string {
  const question = {
    type: 'choice',
    instructions: 'Whose is it? '.repeat(20),
    criteria: { 1: 'x', b: null, a: ['y'] },
  };
  const questions = Object.fromEntries(Array.from({ length: 32 }, (_, i) => [`q${i}`, question]));
  return JSON.stringify({ model: 'decider-1', state: { text: 'I was charged twice. '.repeat(1000) }, questions });
}

/** Time of one call in the quickest of ten batches, in microseconds: other work of the machine only adds. */
function time(call: () => unknown): number {
  const batchOf = (calls: number): number => {
    const start = performance.now();
    for (let i = 0; i < calls; i++) call();
    return ((performance.now() - start) * 1000) / calls;
  };
  const calls = Math.max(1, Math.ceil((BATCH_MS * 1000) / batchOf(20)));
  return Math.min(...Array.from({ length: 10 }, () => batchOf(calls)));
}

const BODIES: readonly (readonly [name: string, route: ModelRoute, body: string])[] = [
  ['2 kB chat, 8 messages', 'chat', chatBody(2_000, 'What is the weather like? '.repeat(8))],
  ['64 kB chat, messages of 200', 'chat', chatBody(65_536, 'What is the weather like? '.repeat(8))],
  ['1 MB chat, one message', 'chat', chatBody(1_000_000, 'a'.repeat(999_900))],
  ['1 MB chat, messages of 2 kB', 'chat', chatBody(1_000_000, 'What is the weather like? '.repeat(80))],
  ['1 MB chat, 4 in 5 characters not ASCII', 'chat', chatBody(350_000, '天気はどう '.repeat(400))],
  ['1 MB chat, a quote every 6 characters', 'chat', chatBody(800_000, 'quote" '.repeat(400))],
  ['64 kB tool parameters', 'chat', toolsBody(65_536)],
  ['1 MB tool parameters', 'chat', toolsBody(1_000_000)],
  ['35 kB systemone, 32 questions', 'systemone', questionsBody()],
];

const rows: Row[] = [];
for (const [name, route, body] of BODIES) {
  const bytes = new TextEncoder().encode(body);
  const decoder = new TextDecoder();
  if (parseBody(route, bytes).kind !== 'ok') throw new Error(`${name} is not taken`);
  const alone = time(() => JSON.parse(decoder.decode(bytes)) as unknown);
  const ours = time(() => parseBody(route, bytes));
  rows.push({
    body: name,
    bytes: String(bytes.length),
    'decode + JSON.parse, µs': alone.toFixed(1),
    'parse + validate, µs': ours.toFixed(1),
    ratio: (ours / alone).toFixed(2),
    'MB/s': (bytes.length / ours).toFixed(0),
  });
}
await keep('parse', {
  title: 'Parse and validate against JSON.parse alone',
  about: ['The quickest of ten batches each; what else the machine does only adds.'],
  rows,
});
