import { isSameDevice } from '../config/devices.js';

interface QueuedStart {
  readonly begin: () => void;
  /** The devices that its engine loads on; none: memory of the host, or all devices. */
  readonly devices: readonly string[];
  loads: boolean;
}

/** Lets engines load one at a time on each device, in the order of requests: two that check free memory at once would both count on it. */
export class StartGate {
  readonly #queue: QueuedStart[] = [];

  /**
   * Calls `begin` when no engine before it loads on one of these devices, perhaps at once. Call the returned function when the load has
   * ended, or to leave the queue; it is idempotent.
   */
  enter(begin: () => void, devices: readonly string[] = []): () => void {
    const place = { begin, devices, loads: false };
    this.#queue.push(place);
    this.#admit();
    return () => this.#leave(place);
  }

  #leave(place: QueuedStart): void {
    const at = this.#queue.indexOf(place);
    if (at < 0) return;
    this.#queue.splice(at, 1);
    this.#admit();
  }

  #admit(): void {
    for (const [at, place] of [...this.#queue].entries()) {
      if (place.loads || this.#queue.slice(0, at).some((before) => share(before, place))) continue;
      place.loads = true;
      place.begin();
    }
  }
}

function share(one: QueuedStart, other: QueuedStart): boolean {
  if (one.devices.length === 0 || other.devices.length === 0) return true;
  return one.devices.some((device) => other.devices.some((second) => isSameDevice(device, second) !== false));
}
