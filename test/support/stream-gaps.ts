/** The gaps between tokens of streams while replies beside them are constrained by a grammar. */
import type { Decoder } from '../../engine/scheduler/decoder.js';
import type { ModelTokens } from '../../engine/scheduler/job.js';
import type { GenerateJob } from '../../engine/protocol/jobs.js';
import type { ReplyGrammar } from '../../engine/protocol/reply-format.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

export interface Beside {
  /** Free replies, whose gaps are measured. */
  readonly streams: number;
  /** Tokens of each. */
  readonly tokens: number;
  /** Replies constrained by `grammar`; each that ends is followed by another. */
  readonly held: number;
  readonly grammar: ReplyGrammar;
}

const LIMITS = {
  contextPerSeat: 512,
  prefillTokensPerStep: 256,
  prefillShare: 50,
  prefixReuse: 'off',
  // Steps that share a message would be one gap.
  sendMs: 0,
  origin: { weights: '', kv: 'f16' },
} as const;
/** As of callers that want as many tokens as can be refused. */
const HOT = { temperature: 2, topP: 1, frequencyPenalty: 0, presencePenalty: 0 };

/**
 * Gaps between the steps that gave free streams tokens, ms, ascending, from when all replies have begun: each step once, though all
 * streams waited for it. And the tokens of constrained replies.
 */
export async function gapsBeside(
  decoder: Decoder,
  isEnd: ModelTokens['isEnd'],
  { streams, tokens, held, grammar }: Beside,
): Promise<{ readonly gaps: number[]; readonly heldTokens: number }> {
  const model: ModelTokens = { isEnd, bytes: () => Buffer.from('x'), control: () => undefined };
  const times: number[] = [];
  const tokensOf = new Map<number, number>();
  let heldTokens = 0;
  let begun = Infinity;
  const started = new Set<number>();
  let live = streams;
  let lastId = 0;
  const loop = await new Promise<StepLoop>((resolve, reject) => {
    const made = new StepLoop(decoder, model, { seats: streams + held, ...LIMITS }, (_, outputs) => {
      const now = performance.now();
      if (outputs.some(({ id, kind }) => kind === 'piece' && id < streams)) times.push(now);
      for (const output of outputs) {
        const { id, kind } = output;
        if (kind === 'failed') reject(new Error('a reply failed'));
        if (kind === 'piece' && id >= streams) {
          heldTokens += output.tokens - (tokensOf.get(id) ?? 0);
          tokensOf.set(id, output.tokens);
        }
        if (kind === 'started') started.add(id);
        if (begun === Infinity && started.size >= streams + held) begun = now;
        if (kind !== 'done' || 'never' in output) continue;
        if (id < streams) live -= 1;
        else if (live > 0) made.generate(++lastId, job(lastId, 256, grammar));
      }
      if (live === 0) resolve(made);
    });
    for (; lastId < streams; lastId++) made.generate(lastId, job(lastId, tokens));
    for (let i = 0; i < held; i++) made.generate(++lastId, job(lastId, 256, grammar));
  });
  await loop.close();
  const gaps = times.slice(1).flatMap((time, i) => (time > begun ? [time - (times[i] ?? time)] : []));
  return { gaps: gaps.sort((a, b) => a - b), heldTokens };
}

function job(id: number, maxTokens: number, grammar?: ReplyGrammar): GenerateJob {
  const prompt = Uint32Array.from({ length: 16 }, (_, i) => 60 + ((i * 7 + id) % 90));
  const format = grammar && { format: { grammar, markers: [] } };
  return {
    prompt: tokenPrompt(prompt),
    n: 1,
    seats: 1,
    maxTokens,
    seed: id,
    stops: [],
    scope: ALL_ACCOUNTS,
    ...HOT,
    ...format,
  };
}
