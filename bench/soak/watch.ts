/** Memory and files of the sidecar’s processes under load, from the kernel, and whether they grow. */
import { readdirSync } from 'node:fs';
import { childrenOf, residentBytes } from '../../test/support/processes.js';

export type Role = 'sidecar' | 'short prompt host' | 'long prompt host' | 'engine';

export interface Sample {
  /** Since the watch began. */
  readonly seconds: number;
  /** A role whose process did not run just then has none. */
  readonly bytes: Readonly<Partial<Record<Role, number>>>;
  readonly files: Readonly<Partial<Record<Role, number>>>;
}

/** How the commands of the children differ: modules, and the prompt host’s lane. */
const CHILDREN: Readonly<Record<Exclude<Role, 'sidecar'>, string>> = {
  'short prompt host': 'sidecar/prompts/host.js short',
  'long prompt host': 'sidecar/prompts/host.js long',
  engine: 'engine/main',
};

/** Measures a sidecar of one engine every `everyMs`, from its creation until it is ended. */
export class Watch {
  readonly samples: Sample[] = [];
  readonly #pid: number;
  readonly #from = performance.now();
  readonly #timer: NodeJS.Timeout;

  constructor(pid: number, everyMs: number) {
    this.#pid = pid;
    this.#timer = setInterval(() => this.#look(), everyMs);
    this.#look();
  }

  /** Measures once more and stops. */
  end(): void {
    clearInterval(this.#timer);
    this.#look();
  }

  #look(): void {
    const bytes: Partial<Record<Role, number>> = {};
    const files: Partial<Record<Role, number>> = {};
    for (const [role, pid] of this.#processes()) {
      const seen = look(pid);
      if (seen) [bytes[role], files[role]] = seen;
    }
    this.samples.push({ seconds: (performance.now() - this.#from) / 1000, bytes, files });
  }

  #processes(): [Role, number][] {
    const children = childrenOf(this.#pid);
    const found: [Role, number][] = [['sidecar', this.#pid]];
    for (const [role, module] of Object.entries(CHILDREN) as [keyof typeof CHILDREN, string][]) {
      const child = children.find(({ command }) => command.includes(module));
      if (child) found.push([role, child.pid]);
    }
    return found;
  }
}

/** Undefined: it ended meanwhile, as an engine does that was just killed. */
function look(pid: number): [bytes: number, files: number] | undefined {
  try {
    return [residentBytes(pid), readdirSync(`/proc/${pid}/fd`).length];
  } catch {
    return undefined;
  }
}

/**
 * Bytes by which a role’s memory grew over the samples, by the least-squares line, not counting the first `warmShare`
 * of them. NaN if it was measured less than twice.
 */
export function grown(samples: readonly Sample[], role: Role, warmShare: number): number {
  const late = samples.slice(Math.floor(samples.length * warmShare));
  const points = late.flatMap(({ seconds, bytes }) =>
    bytes[role] === undefined ? [] : [[seconds, bytes[role]] as const],
  );
  return slope(points) * ((points.at(-1)?.[0] ?? NaN) - (points[0]?.[0] ?? NaN));
}

/** Slope of the least-squares line, y for each x; NaN for fewer than two points. */
export function slope(points: readonly (readonly [x: number, y: number])[]): number {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [x, y] = [mean(points.map(([at]) => at)), mean(points.map(([, value]) => value))];
  const across = points.reduce((sum, [at, value]) => sum + (at - x) * (value - y), 0);
  return across / points.reduce((sum, [at]) => sum + (at - x) ** 2, 0);
}
