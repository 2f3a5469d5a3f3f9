import type { Decoder } from './decode/decoder.js';
import type { ModelTokens } from './loop/task.js';
import type { GenerateJob, Output } from './protocol.js';
import { type StepLimits, StepLoop } from './steps.js';

/**
 * Enough for the kernels of prompts, which are others than those of next tokens; on a CPU less than a second of a large model.
 * On a GPU they are chosen by how many tokens there are, and the last of them from some number up to 64 on.
 */
const PROMPT_TOKENS = { cpu: 16, gpu: 64 } as const;

/** The first one comes with the prompt, the second from a step of its own. */
const REPLY_TOKENS = 2;

/**
 * Makes a reply that nobody hears, as the loop makes all: the first one reads every weight from where it lies, makes llama.cpp's
 * graphs and a GPU's kernels, and compiles our own code, and no caller should wait for that. What is told to be ready can
 * decode. The decoder's sequences hold nothing before and afterwards. Rejects when it cannot decode; then the decoder is of no
 * further use.
 */
export async function warmUp(
  decoder: Decoder,
  tokens: ModelTokens,
  limits: StepLimits,
  device: keyof typeof PROMPT_TOKENS = 'cpu',
): Promise<void> {
  const end = await new Promise<Output>((resolve) => {
    const loop = new StepLoop(decoder, { ...tokens, isEnd: () => false }, limits, (_, outputs) => {
      const last = outputs.find(({ kind }) => kind === 'done' || kind === 'failed');
      if (last) void loop.close().then(() => resolve(last));
    });
    loop.generate(0, firstJob(Math.min(PROMPT_TOKENS[device], limits.contextPerSeat - REPLY_TOKENS)));
  });
  if (end.kind === 'failed') throw new Error(`a first reply failed: ${end.reason}`);
  for (let sequence = 0; sequence < limits.seats; sequence++) await decoder.truncate(sequence, 0);
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
