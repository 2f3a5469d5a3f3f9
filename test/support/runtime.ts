/**
 * What takes tap's place in `make test`: the methods of tap that these tests use, with tap's comparisons (tcompare) and the lines of
 * its output that test-process.ts reads. tap takes 0.3 s of processor time to load and 0.1 ms for each assertion. A file that is run
 * alone, as `node dist/test/make.test.js`, and `make coverage` use tap itself.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { inspect, isDeepStrictEqual, types } from 'node:util';
import { match, same, strict } from 'tcompare';

type Body = (t: Subtest) => unknown;
type Comparison = (found: unknown, wanted: unknown) => { readonly match: boolean; readonly diff: string };

/** Assertions and tests of this process. */
const counts = { pass: 0, fail: 0, tests: 0 };

let dirs = 0;

/** A test, a file of tests, or all files of a process. Its tests run one after the other, `jobs` at a time. */
export class Subtest {
  readonly name: string;
  /** How many of its tests run at a time. */
  jobs = 1;
  failed = 0;
  readonly #parent: Subtest | undefined;
  readonly #waiting: (() => Promise<void>)[] = [];
  /** Tests that have begun and not ended, the newest last. */
  readonly #running: Subtest[] = [];
  readonly #teardowns: (() => unknown)[] = [];
  /** Assertions about promises that are not settled yet. */
  readonly #pending = new Set<Promise<unknown>>();
  #timer: NodeJS.Timeout | undefined;
  #dir: string | undefined;
  #idle: (() => void) | undefined;
  #end!: () => void;
  readonly #ended = new Promise<void>((ended) => (this.#end = ended));
  #interrupt!: (reason: unknown) => void;
  readonly #interrupted = new Promise<never>((_, reject) => (this.#interrupt = reject));
  /** Its remaining tests do not run. */
  #stopped = false;

  constructor(name: string, parent?: Subtest) {
    this.name = name;
    this.#parent = parent;
    this.#interrupted.catch(() => undefined);
  }

  /** Runs a test after those before. Resolves when it has ended, and never rejects. */
  test(name: string, ...rest: [Body] | [{ readonly timeout?: number }, Body]): Promise<void> {
    const [options, body] = rest.length === 1 ? [{}, rest[0]] : rest;
    return new Promise((done) => {
      this.#waiting.push(async () => {
        const test = new Subtest(name, this);
        this.#running.push(test);
        if (options.timeout !== undefined) test.setTimeout(options.timeout);
        await test.#run(body);
        this.#running.splice(this.#running.indexOf(test), 1);
        done();
        this.#next();
      });
      // Not at once, so that a file's later constants exist.
      queueMicrotask(() => this.#next());
    });
  }

  #next(): void {
    if (this.#stopped) this.#waiting.length = 0;
    while (this.#running.length < this.jobs && this.#waiting.length > 0) void this.#waiting.shift()?.();
    if (this.#running.length === 0 && this.#waiting.length === 0) this.#idle?.();
  }

  /** Resolves when no test of it runs or waits. */
  async #settled(): Promise<void> {
    while (this.#running.length > 0 || this.#waiting.length > 0) await new Promise<void>((idle) => (this.#idle = idle));
    await Promise.all(this.#pending);
  }

  async #run(body: Body): Promise<void> {
    counts.tests += 1;
    try {
      await Promise.race([this.#interrupted, this.#whole(body)]);
    } catch (error) {
      this.#stopped = true;
      this.#fault(error);
    }
    clearTimeout(this.#timer);
    await this.#settled();
    await this.close();
  }

  /** Runs the teardowns. */
  async close(): Promise<void> {
    for (const teardown of this.#teardowns.reverse()) {
      try {
        await teardown();
      } catch (error) {
        this.#fault(error);
      }
    }
    if (this.#dir !== undefined) rmSync(this.#dir, { recursive: true, force: true });
  }

  async #whole(body: Body): Promise<void> {
    const made = body(this);
    await (types.isPromise(made) ? made : this.#ended);
    await this.#settled();
  }

  /** Ends the test that runs now, the innermost one, as a failure. */
  interrupt(reason: unknown): void {
    const inner = this.#running.at(-1);
    if (inner) inner.interrupt(reason);
    else this.#interrupt(reason);
  }

  /** After so long it fails, with the test of it that runs; the tests behind that do not run. */
  setTimeout(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#stopped = true;
      const inner = this.#running.at(-1);
      inner?.interrupt(new Error('timeout!'));
      this.#interrupt(new Error(`timeout! after ${ms / 1000} s`));
    }, ms);
  }

  /** Ends a test whose function returns no promise. */
  end(): void {
    this.#end();
  }

  /** Runs when the test has ended, the last one first. */
  teardown(fn: () => unknown): void {
    this.#teardowns.push(fn);
  }

  comment(): void {
    // Only tap prints it.
  }

  /** Whether no assertion has failed so far. */
  passing(): boolean {
    return this.failed === 0;
  }

  /** The folder that {@link testdir} makes. */
  get testdirName(): string {
    return (this.#dir ??= resolve('.tap/fixtures', `${process.pid}-${(dirs += 1)}`));
  }

  /** An empty folder with these files and folders, removed when the test has ended. */
  testdir(content: object = {}): string {
    const dir = this.testdirName;
    rmSync(dir, { recursive: true, force: true });
    fill(dir, content);
    return dir;
  }

  pass(): boolean {
    counts.pass += 1;
    return true;
  }

  fail(message: string | object = 'failed', extra?: object): boolean {
    const details = typeof message === 'string' ? extra : message;
    this.#report(typeof message === 'string' ? message : 'failed', details === undefined ? '' : shown(details));
    return false;
  }

  ok(value: unknown, message?: string, extra?: object): boolean {
    return value ? this.pass() : this.fail(message ?? 'should be true', extra ?? { found: value });
  }

  notOk(value: unknown, message?: string, extra?: object): boolean {
    return value ? this.fail(message ?? 'should be false', extra ?? { found: value }) : this.pass();
  }

  equal(found: unknown, wanted: unknown, message = 'should be equal', extra?: object): boolean {
    return found === wanted ? this.pass() : this.#differs(strict, found, wanted, message, extra, true);
  }

  not(found: unknown, doNotWant: unknown, message = 'should not be equal'): boolean {
    return found !== doNotWant ? this.pass() : this.fail(message, { found });
  }

  same(found: unknown, wanted: unknown, message = 'should be equivalent', extra?: object): boolean {
    return isDeepStrictEqual(found, wanted) ? this.pass() : this.#differs(same, found, wanted, message, extra);
  }

  notSame(found: unknown, doNotWant: unknown, message = 'should not be equivalent'): boolean {
    return same(found, doNotWant).match ? this.fail(message, { found }) : this.pass();
  }

  strictSame(found: unknown, wanted: unknown, message = 'should be equivalent strictly', extra?: object): boolean {
    return isDeepStrictEqual(found, wanted) ? this.pass() : this.#differs(strict, found, wanted, message, extra);
  }

  match(found: unknown, wanted: unknown, message = 'should match pattern', extra?: object): boolean {
    return this.#differs(match, found, wanted, message, extra);
  }

  notMatch(found: unknown, doNotWant: unknown, message = 'should not match pattern'): boolean {
    return match(found, doNotWant).match ? this.fail(message, { found, doNotWant }) : this.pass();
  }

  /** A name as `typeof` gives it, or a class. */
  type(found: unknown, wanted: string | (abstract new (...args: never) => unknown), message?: string): boolean {
    const is = typeof wanted === 'string' ? typeof found === wanted : found instanceof wanted;
    return is ? this.pass() : this.fail(message ?? `should be ${String(wanted)}`, { found });
  }

  throws(fn: () => unknown, ...rest: unknown[]): boolean {
    const [wanted, message] = expectation(rest, 'expected to throw');
    try {
      fn();
    } catch (error) {
      return this.#fits(error, wanted, message);
    }
    return this.fail(message);
  }

  doesNotThrow(fn: () => unknown, message = 'expected to not throw'): boolean {
    try {
      fn();
    } catch (error) {
      return this.fail(message, { error });
    }
    return this.pass();
  }

  rejects(promise: Promise<unknown> | (() => Promise<unknown>), ...rest: unknown[]): Promise<boolean> {
    const [wanted, message] = expectation(rest, 'expected to reject');
    return this.#later(promise, {
      resolved: () => this.fail(message),
      rejected: (error) => this.#fits(error, wanted, message),
    });
  }

  resolves(promise: Promise<unknown> | (() => Promise<unknown>), message = 'expected to resolve'): Promise<boolean> {
    return this.#later(promise, {
      resolved: () => this.pass(),
      rejected: (error) => this.fail(message, { error }),
    });
  }

  /** Replaces a method until the test ends. The returned function lists its calls since the last time. */
  capture(of: object, method: string, by: (...args: unknown[]) => unknown = () => undefined) {
    const holder = of as Record<string, unknown>;
    const before = Object.getOwnPropertyDescriptor(holder, method);
    let calls: { args: unknown[]; returned?: unknown }[] = [];
    const restore = (): void => {
      if (before) Object.defineProperty(holder, method, before);
      else Reflect.deleteProperty(holder, method);
    };
    const value = function (this: unknown, ...args: unknown[]): unknown {
      const returned = by.apply(this, args);
      calls.push({ args, returned });
      return returned;
    };
    Object.defineProperty(holder, method, { configurable: true, writable: true, enumerable: true, value });
    this.teardown(restore);
    const results = (): typeof calls => {
      const made = calls;
      calls = [];
      return made;
    };
    return Object.assign(results, { restore, args: () => results().map(({ args }) => args) });
  }

  #later(
    made: Promise<unknown> | (() => Promise<unknown>),
    { resolved, rejected }: { resolved: () => boolean; rejected: (error: unknown) => boolean },
  ): Promise<boolean> {
    const promise = typeof made === 'function' ? (async () => made())() : made;
    const judged = promise.then(resolved, rejected);
    this.#pending.add(judged);
    return judged.finally(() => this.#pending.delete(judged));
  }

  #fits(error: unknown, wanted: unknown, message: string): boolean {
    if (wanted === undefined) return this.pass();
    // Patterns name these, which are not enumerable.
    for (const key of ['name', 'message'] as const) {
      const value: unknown = error instanceof Error ? error[key] : undefined;
      if (value !== undefined)
        Object.defineProperty(error, key, { value, enumerable: true, configurable: true, writable: true });
    }
    return this.match(wanted instanceof RegExp && error instanceof Error ? error.message : error, wanted, message);
  }

  /** `identical`: they must be one object. */
  #differs(
    compare: Comparison,
    found: unknown,
    wanted: unknown,
    message: string,
    extra: object = {},
    identical = false,
  ): boolean {
    const { match: equal, diff } = compare(found, wanted);
    if (equal && !identical) return this.pass();
    this.#report(message, `${diff || shown({ found, wanted })}${Object.keys(extra).length > 0 ? shown(extra) : ''}`);
    return false;
  }

  #fault(error: unknown): void {
    const text = error instanceof Error ? (error.stack ?? error.message) : shown({ error });
    this.#report(error instanceof Error ? error.message : String(error), text);
  }

  #report(message: string, details: string): void {
    this.#countFailure();
    counts.fail += 1;
    const at = (new Error().stack ?? '')
      .split('\n')
      .find((line) => line.includes('/dist/') && !line.includes('/runtime.js'));
    const lines = [...details.split('\n'), ...(at === undefined ? [] : [at.trim()])].map((line) => `      ${line}`);
    const title = `${this.#path()}: ${message}`.replaceAll('\n', ' ');
    process.stdout.write(
      `    not ok ${counts.pass + counts.fail} - ${title}\n      ---\n${lines.join('\n')}\n      ...\n`,
    );
  }

  #countFailure(): void {
    this.failed += 1;
    if (this.#parent) this.#parent.#countFailure();
  }

  /** The names of the test and of those that it is in. */
  #path(): string {
    return this.#parent === undefined || this.#parent.name === ''
      ? this.name
      : `${this.#parent.#path()} > ${this.name}`;
  }
}

function shown(details: object): string {
  return Object.entries(details)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : inspected(value)}`)
    .join('\n');
}

function inspected(value: unknown): string {
  return value instanceof Error ? (value.stack ?? value.message) : inspect(value).slice(0, 10_000);
}

/** What an error must be, and the message, of `(wanted?, message?)`. */
function expectation([wanted, message]: readonly unknown[], otherwise: string): [wanted: unknown, message: string] {
  if (typeof wanted === 'string') return [undefined, wanted];
  return [wanted, typeof message === 'string' ? message : otherwise];
}

function fill(dir: string, content: object): void {
  mkdirSync(dir, { recursive: true });
  for (const [name, value] of Object.entries(content) as [string, string | Uint8Array | object][]) {
    const path = join(dir, name);
    if (typeof value === 'string' || value instanceof Uint8Array) writeFileSync(path, value);
    else fill(path, value);
  }
}

/** A file of tests, as a path from the repository’s root, with the time after which it has failed, s. */
export type TestFile = readonly [file: string, limitS?: number];

/** Of all files of this process: for what they share. */
export const root = new Subtest('');

/**
 * Runs the files of this process one after the other, and prints of each whether it passed, its time by the clock and the processor
 * time of this process and its children, then the counts. `load`: imports a file, whose tests are those of `t`. What the tests throw
 * outside of their promises ends the test that runs.
 */
export async function runFiles(
  files: readonly TestFile[],
  load: (file: string, t: Subtest) => Promise<unknown>,
  usedS: () => number,
): Promise<void> {
  process.on('uncaughtException', (error) => root.interrupt(error));
  process.on('beforeExit', () => root.interrupt(new Error('it waits for what never comes')));
  // Until all have passed.
  process.exitCode = 1;
  for (const [index, [file, limitS]] of files.entries()) {
    const [from, before, passed, tests] = [performance.now(), usedS(), counts.pass, counts.tests];
    let failed = 0;
    await root.test(file, limitS === undefined ? {} : { timeout: limitS * 1000 }, async (t) => {
      t.teardown(() => {
        // The file itself is one.
        if (counts.pass === passed && counts.tests === tests + 1 && t.failed === 0) t.fail('no test');
        failed = t.failed;
      });
      await load(file, t);
    });
    const times = `time=${(performance.now() - from).toFixed(0)}ms cpu=${(usedS() - before).toFixed(2)}s`;
    process.stdout.write(`${failed === 0 ? 'ok' : 'not ok'} ${index + 1} - ${file} # ${times}\n`);
  }
  await root.close();
  process.removeAllListeners('beforeExit');
  const { pass, fail } = counts;
  process.stdout.write(`# { total: ${pass + fail}, pass: ${pass}, fail: ${fail} }\n`);
  process.exitCode = fail === 0 && pass > 0 ? 0 : 1;
}
