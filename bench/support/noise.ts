/** What else was done on the machine while something was measured. */
import { OtherWork } from './busy.js';
import { machineSpeed, type MachineSpeed } from './machine-speed.js';
import { Stolen } from './stolen.js';

export interface Noise {
  /** Cores that were busy with other work; null: not known. */
  readonly busy: number | null;
  /** Percent of the machine’s time that its host gave to others; null: not known. */
  readonly stolenPercent: number | null;
  /** Of the machine, before and after. */
  readonly speeds: readonly MachineSpeed[];
  /** How long it was looked at. */
  readonly seconds: number;
}

/** From its creation on. Creating and reading it take a tenth of a second, for the machine's speed. */
export class NoiseMeter {
  readonly #before = machineSpeed();
  readonly #other = new OtherWork();
  readonly #stolen = new Stolen();
  readonly #from = performance.now();

  read(): Noise {
    const noise = {
      busy: this.#other.cores ?? null,
      stolenPercent: this.#stolen.percent ?? null,
      seconds: (performance.now() - this.#from) / 1000,
    };
    return { ...noise, speeds: [this.#before, machineSpeed()] };
  }
}

/** Of the parts of this bench, also of those that an earlier start measured. */
const counted: Noise[] = [];

export function countNoises(noises: readonly Noise[]): void {
  counted.push(...noises);
}

/** The average of all that was counted, with all speeds. */
export function countedNoise(): Omit<Noise, 'seconds'> {
  return {
    busy: average(({ busy }) => busy),
    stolenPercent: average(({ stolenPercent }) => stolenPercent),
    speeds: counted.flatMap(({ speeds }) => speeds),
  };
}

/** By time. null: not known of any part. */
function average(of: (noise: Noise) => number | null): number | null {
  let [sum, all] = [0, 0];
  for (const noise of counted) {
    const value = of(noise);
    if (value === null) continue;
    sum += value * noise.seconds;
    all += noise.seconds;
  }
  return all > 0 ? sum / all : null;
}
