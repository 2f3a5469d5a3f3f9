/** What the kernel shows of the sidecar's processes while it is under load, and whether it grows. */
import { readdirSync } from 'node:fs';
import { childrenOf, residentBytes } from '../../test/support/processes.js';

export type Role = 'sidecar' | 'short prompt host' | 'long prompt host' | 'engine';

export interface Sample {
  /** Since the watch began. */
  readonly seconds: number;
  /** Of a role whose process was not there just then, nothing. */
  readonly bytes: Readonly<Partial<Record<Role, number>>>;
  readonly files: Readonly<Partial<Record<Role, number>>>;
}

/** How the commands of the children begin to differ: modules, and the lane that a prompt host is given. */
const CHILDREN: Readonly<Record<Exclude<Role, 'sidecar'>, string>> = {
  'short prompt host': 'sidecar/prompts/host.js short',
  'long prompt host': 'sidecar/prompts/host.js long',
  engine: 'engine/main',
};

/** Looks at a sidecar of one engine every `everyMs`, from its making until it is ended. */
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

  /** Looks once more and no more. */
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

/** Undefined: it ended while it was looked at, as an engine does that was just killed. */
function look(pid: number): [bytes: number, files: number] | undefined {
  try {
    return [residentBytes(pid), readdirSync(`/proc/${pid}/fd`).length];
  } catch {
    return undefined;
  }
}

/**
 * Bytes by which a role's memory grew over the samples, by the line nearest to them, not counting the first `warmShare` of
 * them. NaN where it was seen less than twice.
 */
export function grown(samples: readonly Sample[], role: Role, warmShare: number): number {
  const late = samples.slice(Math.floor(samples.length * warmShare));
  const points = late.flatMap(({ seconds, bytes }) =>
    bytes[role] === undefined ? [] : [[seconds, bytes[role]] as const],
  );
  return slope(points) * ((points.at(-1)?.[0] ?? NaN) - (points[0]?.[0] ?? NaN));
}

/** Slope of the straight line nearest to the points (least squares), y for each x; NaN for fewer than two points. */
export function slope(points: readonly (readonly [x: number, y: number])[]): number {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [x, y] = [mean(points.map(([at]) => at)), mean(points.map(([, value]) => value))];
  const across = points.reduce((sum, [at, value]) => sum + (at - x) * (value - y), 0);
  return across / points.reduce((sum, [at]) => sum + (at - x) ** 2, 0);
}
