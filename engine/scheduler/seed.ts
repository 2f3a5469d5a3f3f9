/** With this seed llama.cpp, and its server, choose one of their own. */
const RANDOM_SEED = 0xffffffff;

/** A seed that fixes the random numbers: `seed`, of 32 bits, or the one before where llama.cpp would choose its own. */
export function fixedSeed(seed: number): number {
  return seed === RANDOM_SEED ? seed - 1 : seed;
}
