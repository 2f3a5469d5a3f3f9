/** Faults that tests cause in a running sidecar, and how they observe the results. */
import { childrenOf, eventually } from './processes.js';
import { CHAT, type Sidecar } from './sidecar.js';

/** Stops the chat engine’s `life`th process, counted from 1, before it can be ready. Returns what continues it. */
export async function holdEngine(sidecar: Sidecar, life: number): Promise<() => void> {
  const pid = Number((await sidecar.logged('engine forked', life, ({ model }) => model === CHAT))['pid']);
  process.kill(pid, 'SIGSTOP');
  return () => process.kill(pid, 'SIGCONT');
}

/**
 * Kills the prompt host of a lane, which is a child of `parent`, and stops its successor before it can be ready.
 * Returns what continues that one.
 */
export async function holdPromptHost(parent: number, lane: 'short' | 'long'): Promise<() => void> {
  const hosts = (): number[] =>
    childrenOf(parent)
      .filter(({ command }) => command.includes(`prompts/host.js ${lane}`))
      .map(({ pid }) => pid);
  const [first] = hosts();
  if (first === undefined) throw new Error(`${parent} has no prompt host of the ${lane} lane`);
  process.kill(first, 'SIGKILL');
  const next: number[] = [];
  await eventually(`another prompt host of the ${lane} lane`, () => {
    next.push(...hosts().filter((pid) => pid !== first));
    for (const pid of next) process.kill(pid, 'SIGSTOP');
    return next.length > 0;
  });
  return () => next.forEach((pid) => process.kill(pid, 'SIGCONT'));
}

/** Waits until a gauge or counter of the chat model is at `value`: no event reports its changes. */
export async function counted(
  sidecar: Sidecar,
  metric: 'seats_busy' | 'waiting_requests' | 'cancels_total',
  value: number,
  labels: Readonly<Record<string, string>> = {},
): Promise<void> {
  const name = `ra_sidecar_${metric}`;
  await eventually(`${name} at ${value}`, async () => {
    return (await sidecar.metric(name, { model: CHAT, ...labels })) === value;
  });
}
