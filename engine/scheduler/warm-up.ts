import type { Decoder } from './decoder.js';
import type { ModelTokens, StepLimits } from './job.js';
import { tokenPrompt } from '../protocol/prompt.js';
import type { GenerateJob } from '../protocol/jobs.js';
import { StepLoop } from './step-loop.js';
import { ALL_ACCOUNTS } from '../protocol/cache-key.js';

/**
 * Enough for the kernels of prompts, which differ from those of next tokens; on a CPU less than a second with a large
 * model. A GPU's kernels depend on the number of tokens, up to at most 64.
 */
const PROMPT_TOKENS = { cpu: 16, gpu: 64 } as const;

/**
 * Concurrent replies. A GPU has separate kernels for next tokens of one to eight sequences, and some for more by their
 * number, and Vulkan compiles each at first use, which takes seconds on a slow driver. A CPU has none to compile.
 */
const TOGETHER = { cpu: [1], gpu: [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64] } as const;

/** The first one comes with the prompt, the second from its own step. */
const LEAST_REPLY_TOKENS = 2;

/**
 * Runs warm-up generations through the step loop: the first ones read every weight, create llama.cpp's graphs and a
 * GPU's kernels, and compile our own code, so that no caller waits for it. A ready engine can therefore decode. The
 * decoder's sequences are empty before and afterwards. Rejects if it cannot decode; the decoder is then unusable.
 */
export async function warmUp(
  decoder: Decoder,
  tokens: ModelTokens,
  limits: StepLimits,
  device: keyof typeof TOGETHER = 'cpu',
): Promise<void> {
  const jobs = firstJobs(limits, device);
  const failed = await new Promise<string | undefined>((resolve) => {
    let left = jobs.length;
    // Its prompts are equal tokens, which would be drafted: the number of sequences in a step is what it is about.
    const plain = Object.assign({}, limits, { speculation: 'off' as const });
    const loop = new StepLoop(decoder, { ...tokens, isEnd: () => false }, plain, (_, outputs) => {
      const ends = outputs.filter(({ kind }) => kind === 'done' || kind === 'failed');
      left -= ends.length;
      const failure = ends.find((end) => end.kind === 'failed');
      if (failure || left === 0) void loop.close().then(() => resolve(failure?.reason));
    });
    jobs.forEach((job, id) => loop.generate(id, job));
  });
  if (failed !== undefined) throw new Error(`a first reply failed: ${failed}`);
  const sequences = limits.seats + (limits.parked ?? 0);
  for (let sequence = 0; sequence < sequences; sequence++) await decoder.states.truncate(sequence, 0);
}

/** Lengths that cause each of {@link TOGETHER} for which there are seats. The tokens are arbitrary. */
function firstJobs({ seats, contextPerSeat }: StepLimits, device: keyof typeof TOGETHER): GenerateJob[] {
  const together = [...new Set(TOGETHER[device].map((replies) => Math.min(replies, seats)))];
  // Beside others, the long prompt's first token may come a step later.
  const least = together.length > 1 ? LEAST_REPLY_TOKENS : LEAST_REPLY_TOKENS - 1;
  return Array.from({ length: Math.max(...together) }, (_, i) => {
    // One long prompt is enough.
    const promptTokens = Math.min(i === 0 ? PROMPT_TOKENS[device] : 1, contextPerSeat - LEAST_REPLY_TOKENS);
    const steps = together.filter((replies) => replies > i).length;
    return {
      prompt: tokenPrompt(new Uint32Array(promptTokens)),
      n: 1,
      seats: 1,
      maxTokens: Math.min(least + steps, contextPerSeat - promptTokens),
      temperature: 1,
      topP: 1,
      frequencyPenalty: 0,
      presencePenalty: 0,
      seed: 0,
      stops: [],
      scope: ALL_ACCOUNTS,
    };
  });
}
