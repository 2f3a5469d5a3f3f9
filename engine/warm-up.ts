import type { Decoder } from './decode/decoder.js';
import { LoadFailure } from './load/load-failure.js';
import type { ModelTokens } from './loop/task.js';
import type { GenerateJob, Output } from './protocol.js';
import { type StepLimits, StepLoop } from './steps.js';

/** Enough for the kernels of prompts, which are others than those of next tokens; on a CPU less than a second of a large model. */
const PROMPT_TOKENS = 16;

/** The first one comes with the prompt, the second from a step of its own. */
const REPLY_TOKENS = 2;

/**
 * Makes a reply that nobody hears, as the loop makes all: the first one reads every weight from where it lies, makes llama.cpp's
 * graphs and a GPU's kernels, and compiles our own code, and no caller should wait for that. What is told to be ready can
 * decode. The decoder's sequences hold nothing before and afterwards. Rejects with a {@link LoadFailure} when it cannot decode.
 */
export async function warmUp(decoder: Decoder, tokens: ModelTokens, limits: StepLimits): Promise<void> {
  const end = await new Promise<Output>((resolve) => {
    const loop = new StepLoop(decoder, { ...tokens, isEnd: () => false }, limits, (_, outputs) => {
      const last = outputs.find(({ kind }) => kind === 'done' || kind === 'failed');
      if (last) void loop.close().then(() => resolve(last));
    });
    loop.generate(0, firstJob(Math.min(PROMPT_TOKENS, limits.contextPerSeat - REPLY_TOKENS)));
  });
  for (let sequence = 0; sequence < limits.seats; sequence++) await decoder.truncate(sequence, 0);
  if (end.kind === 'failed') throw new LoadFailure(`a first reply failed: ${end.reason}`, true);
}

/** Any tokens do. */
function firstJob(promptTokens: number): GenerateJob {
  return {
    prompt: new Uint32Array(promptTokens),
    n: 1,
    seats: 1,
    maxTokens: REPLY_TOKENS,
    temperature: 1,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    seed: 0,
    stops: [],
  };
}
