// Runs the steps of one client and prints a line of JSON for each: {"step", "ok", "why"}. Usage: node run.mjs CLIENT
// RA_BASE, RA_KEY, RA_MODEL: the sidecar's base URL, a key and the model. RA_LIMITED_KEY: a key that may have one request in flight.
// RA_CONTROL: the address at which the test kills the engine, or waits until a request was refused.
import { env } from 'node:process';

// Some frameworks leave promises of an aborted stream unhandled.
process.on('unhandledRejection', (error) => {
  if (error?.name !== 'AbortError') throw error;
});

const [client, ...only] = process.argv.slice(2);
const given = {
  base: env.RA_BASE,
  key: env.RA_KEY,
  limited: env.RA_LIMITED_KEY,
  model: env.RA_MODEL,
  control: env.RA_CONTROL,
};
/** A step that takes longer hangs. */
const STEP_MS = 60_000;

const steps = await (await import(`./${client}.mjs`)).default(given);
for (const [step, run] of Object.entries(steps)) {
  if (only.length > 0 && !only.includes(step)) continue;
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('hangs')), STEP_MS);
  });
  try {
    await Promise.race([run(), late]);
    console.log(JSON.stringify({ step, ok: true }));
  } catch (error) {
    console.log(JSON.stringify({ step, ok: false, why: String(error?.stack ?? error).slice(0, 1500) }));
  } finally {
    clearTimeout(timer);
  }
}
process.exit(0);
