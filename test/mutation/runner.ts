/**
 * Stryker’s runner for the tests: each unit test file of the contracts, with all of its imports, is evaluated in this
 * process while a mutant is active. So mutants of schemas, which take effect when a module loads, are tested like all
 * others.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { INSTRUMENTER_CONSTANTS } from '@stryker-mutator/api/core';
import { PluginKind, declareClassPlugin } from '@stryker-mutator/api/plugin';
import {
  DryRunStatus,
  TestStatus,
  determineHitLimitReached,
  toMutantRunResult,
  type DryRunResult,
  type MutantRunOptions,
  type MutantRunResult,
  type TestResult,
  type TestRunner,
  type TestRunnerCapabilities,
} from '@stryker-mutator/api/test-runner';
import { Modules } from './modules.js';
import { QuickTap } from './quick-tap.js';

/** The switches and counters that instrumented code reads and writes. */
interface StrykerState {
  activeMutant?: string | undefined;
  currentTestId?: string | undefined;
  hitCount?: number | undefined;
  hitLimit?: number | undefined;
  mutantCoverage?: NonNullable<Extract<DryRunResult, { status: DryRunStatus.Complete }>['mutantCoverage']>;
}

const UNITS = 'test/sidecar/contracts';

/** Not run: they take seconds, and what they test is not a rule of the contract. `schemas` tests the code that a build writes. */
const LEFT_OUT = new Set(['fuzz', 'hostile', 'long-cases', 'schemas']);

/** The most decisive first: a mutant’s run ends at the first failed test. */
const FIRST = ['cases', 'answer-fields', 'answers', 'decision-answers', 'validator'];

function testFiles(root: string): string[] {
  const names = readdirSync(join(root, UNITS))
    .map((file) => file.replace(/\.test\.ts$/, ''))
    .filter((name) => !LEFT_OUT.has(name) && !FIRST.includes(name));
  return [...FIRST, ...names].map((name) => `${UNITS}/${name}.test.ts`);
}

class InProcessRunner implements TestRunner {
  readonly #modules = new Modules(process.cwd(), (path) => path.startsWith('sidecar/') || path.startsWith(UNITS));
  readonly #tests = testFiles(process.cwd());
  readonly #state: StrykerState;

  constructor() {
    const all = globalThis as unknown as Record<string, StrykerState>;
    this.#state = all[INSTRUMENTER_CONSTANTS.NAMESPACE] ??= {};
  }

  capabilities(): TestRunnerCapabilities {
    return { reloadEnvironment: true };
  }

  async dryRun(): Promise<DryRunResult> {
    const tests: TestResult[] = [];
    for (const path of this.#tests) tests.push(await this.#run(path));
    const { mutantCoverage } = this.#state;
    return { status: DryRunStatus.Complete, tests, ...(mutantCoverage && { mutantCoverage }) };
  }

  async mutantRun({ activeMutant, testFilter, hitLimit }: MutantRunOptions): Promise<MutantRunResult> {
    Object.assign(this.#state, {
      activeMutant: activeMutant.id,
      hitCount: hitLimit === undefined ? undefined : 0,
      hitLimit,
    });
    const tests: TestResult[] = [];
    for (const path of this.#tests) {
      if (testFilter?.includes(path) === false) continue;
      const result = await this.#run(path);
      tests.push(result);
      if (result.status === TestStatus.Failed) break;
    }
    const endless = determineHitLimitReached(this.#state.hitCount, hitLimit);
    this.#state.activeMutant = undefined;
    return toMutantRunResult(endless ?? { status: DryRunStatus.Complete, tests });
  }

  async #run(path: string): Promise<TestResult> {
    const start = performance.now();
    const tap = new QuickTap();
    this.#state.currentTestId = path;
    let failure: string | undefined;
    try {
      this.#modules.load(path, new Map([['tap', { __esModule: true, default: tap }]]));
      await tap.done();
    } catch (error) {
      failure = String(error);
    }
    this.#state.currentTestId = undefined;
    const base = { id: path, name: path, timeSpentMs: performance.now() - start };
    return failure === undefined
      ? { ...base, status: TestStatus.Success }
      : { ...base, status: TestStatus.Failed, failureMessage: failure };
  }
}

export const strykerPlugins = [declareClassPlugin(PluginKind.TestRunner, 'in-process', InProcessRunner)];
