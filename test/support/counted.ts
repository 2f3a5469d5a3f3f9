import { eventually } from './processes.js';
import { CHAT, type Sidecar } from './sidecar.js';

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
