/** Numbers that samplers take for something else than the contract means. */

/** With this seed llama.cpp, and its server, choose one of their own. */
const RANDOM_SEED = 0xffffffff;

/** Logits divided by less may be infinite, and their differences no numbers. It chooses the most probable token long before. */
const LEAST_TEMPERATURE = 1e-6;

/** A seed that fixes the random numbers: `seed`, of 32 bits, or the one before where llama.cpp would choose its own. */
export function fixedSeed(seed: number): number {
  return seed === RANDOM_SEED ? seed - 1 : seed;
}

/** The temperature to compute with: 0, which chooses the most probable token, in place of one that is too small to divide by. */
export function usableTemperature(temperature: number): number {
  return temperature < LEAST_TEMPERATURE ? 0 : temperature;
}
