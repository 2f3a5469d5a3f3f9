/**
 * Runs the benches of a plan one after another without a person: those whose results are of the present code are left out, so that
 * a run that was ended goes on where it was; one that fails does not end the others.
 */
import type { InstalledAddon } from '../support/addon.js';
import type { Addon, Bench } from './plan.js';

/** What a result records of how it came to be. */
export interface Recorded {
  readonly commit?: string;
  /** The machine was busy. */
  readonly rough?: boolean;
  /** What it measured is not as it should be. */
  readonly failed?: boolean;
  readonly addon?: string;
  /** As it was started, without quotes. */
  readonly command?: string;
  readonly machine?: string;
  /** Node's version, such as `v20.20.2`. */
  readonly node?: string;
  /** How long it took, s. */
  readonly seconds?: number;
}

/** What a run needs of the machine and of the repository. */
export interface Environment {
  /** What `bench/results/<name>.json` records; undefined: there is none. */
  recorded(name: string): Recorded | undefined;
  /** True if what the bench depends on is as it was in `commit`. */
  isCurrent(commit: string, bench: Bench): boolean;
  /** What results of this machine record; without a machine, results of any machine count. */
  readonly present: { readonly machine?: string; readonly node: string };
  /** The one that engines load now. */
  addon(): InstalledAddon;
  /** Puts the addon in place; false if it could not be built. */
  useAddon(addon: InstalledAddon): boolean;
  /** Waits until the machine is quiet; false if it was not for the whole time that is waited. */
  quiet(): Promise<boolean>;
  /** Runs `node dist/bench/<command>`, and ends it after `limitMs`; returns its exit code, null if it was killed. */
  run(command: string, limitMs: number): Promise<number | null>;
  write(line: string): void;
}

/**
 * A bench that takes this many times as long as planned hangs, and so does a short one that takes this long. The plan is of a fast
 * machine (`Bench.minutes`); a slow one takes several times as long.
 */
const LIMIT_FACTOR = 5;
const LEAST_LIMIT_MS = 10 * 60_000;

/** Benches by what became of them. */
export interface Outcome {
  readonly done: readonly string[];
  readonly current: readonly string[];
  /** With why. */
  readonly failed: readonly string[];
}

/**
 * True if all results of a bench are there, of the present code, whole, and of the addon where it matters; where clocks are
 * compared, also of this machine while it was quiet, and of this major version of Node.
 */
function isDone(bench: Bench, bed: Environment): boolean {
  return bench.results.every((name) => {
    const { commit, rough = false, failed = false, addon, command, machine, node = '' } = bed.recorded(name) ?? {};
    const { present } = bed;
    const sameMachine = present.machine === undefined || machine === present.machine;
    const sameClocks = !rough && sameMachine && major(node) === major(present.node);
    return (
      commit !== undefined &&
      !failed &&
      (sameClocks || !bench.quiet) &&
      (bench.addon === 'either' || addon === bench.addon) &&
      command === recordedCommand(bench) &&
      bed.isCurrent(commit, bench)
    );
  });
}

/** What a bench took the last time, on whatever machine, or else what the plan says, min. */
function expectedMinutes({ results, minutes }: Bench, bed: Environment): number {
  const took = Math.max(...results.map((name) => bed.recorded(name)?.seconds ?? NaN));
  return Number.isFinite(took) ? took / 60 : minutes;
}

function major(version: string): string | undefined {
  return version.split('.')[0];
}

/** What a result of the whole bench records. A run of a part of it keeps the other rows of the run before. */
function recordedCommand({ command }: Bench): string {
  return `node dist/bench/${command.replaceAll('""', '')}`;
}

/** The order of a run: the plan's, but that all benches of the addon that is in place come before the other's. */
function ordered(plan: readonly Bench[], present: 'prebuilt' | 'native'): readonly Bench[] {
  const place = ({ quiet, addon }: Bench): number =>
    (quiet ? 0 : 4) + (addon === 'either' ? 0 : addon === present ? 1 : 2);
  return plan.toSorted((a, b) => place(a) - place(b));
}

/** The list of what a run would do, with how long each takes. */
export function listed(plan: readonly Bench[], bed: Environment): readonly string[] {
  const due = ordered(plan, bed.addon()).filter((bench) => !isDone(bench, bed));
  const lines = due.map((bench) => {
    const needs = [
      ...(bench.quiet ? ['quiet machine'] : []),
      ...(bench.addon === 'either' ? [] : [`${bench.addon} addon`]),
    ];
    return `${expectedMinutes(bench, bed).toFixed(1).padStart(6)} min  ${bench.command}${needs.length > 0 ? `  (${needs.join(', ')})` : ''}`;
  });
  const sum = (benches: readonly Bench[]): string =>
    duration(benches.reduce((minutes, bench) => minutes + expectedMinutes(bench, bed), 0));
  const quiet = due.filter(({ quiet }) => quiet);
  return [
    ...lines,
    `${due.length} of ${plan.length} benches, about ${sum(due)} besides waits and builds, of which ${sum(quiet)} need a quiet machine; ` +
      `${plan.length - due.length} have results of this code`,
  ];
}

function duration(minutes: number): string {
  const whole = Math.ceil(minutes);
  return whole < 60 ? `${whole} min` : `${Math.floor(whole / 60)} h ${whole % 60} min`;
}

/** Runs what is due. Writes the list first, then a line before and after each bench. */
export async function runPlan(plan: readonly Bench[], bed: Environment): Promise<Outcome> {
  const done: string[] = [];
  const current: string[] = [];
  const failed: string[] = [];
  for (const line of listed(plan, bed)) bed.write(line);
  for (const bench of ordered(plan, bed.addon())) {
    if (isDone(bench, bed)) {
      current.push(bench.command);
      continue;
    }
    bed.write(`${bench.command}: about ${duration(expectedMinutes(bench, bed))}`);
    const why = await attempt(bench, bed);
    bed.write(`${bench.command}: ${why ?? 'done'}`);
    if (why === undefined) done.push(bench.command);
    else failed.push(`${bench.command}: ${why}`);
  }
  return { done, current, failed };
}

/** Why a bench has no result of the present code; undefined if it has. */
async function attempt(bench: Bench, bed: Environment): Promise<string | undefined> {
  if (!inPlace(bench.addon, bed)) return `the ${bench.addon} addon could not be put in place`;
  if (bench.quiet && !(await bed.quiet())) return 'not run, the machine was not quiet';
  const code = await bed.run(bench.command, Math.max(LEAST_LIMIT_MS, LIMIT_FACTOR * bench.minutes * 60_000));
  if (code !== 0) return `ended with ${code ?? 'a signal'}`;
  return isDone(bench, bed) ? undefined : 'wrote no result of this code on a quiet machine';
}

function inPlace(addon: Addon, bed: Environment): boolean {
  return addon === 'either' || addon === bed.addon() || bed.useAddon(addon);
}
