import type { Decoder, StepPart, PartResult, Run } from '../../engine/scheduler/decoder.js';

/** Makes a step, or with `run` a run to its end, of as many tokens for each part. `hear`: gets the results as they come, the last ones too. */
export async function decodeRun(
  decoder: Decoder,
  parts: readonly StepPart[],
  run: (Pick<Run, 'everyMs'> & { readonly most: number }) | undefined,
  hear: (results: readonly PartResult[]) => void,
): Promise<void> {
  const running = decoder.step(parts, run && { ...run, most: parts.map(() => run.most) });
  for (;;) {
    const { done, value } = await running.next();
    hear(value);
    if (done === true) return;
  }
}
