/**
 * The module `tap` of the compiled tests: node finds the package of that name in dist/test/node_modules before that of the repository.
 * In a process that runs several files it is the subtest of the file that runs, elsewhere tap itself. A hook of module resolution could
 * do that too; Node.js 20 asks its hooks in a thread, which costs half of the time in which modules load.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Subtest } from './runtime.js';

/** What the module looks for, of {@link globalThis}. */
const NAME = 'subtestOfTheFile';

const MODULE = fileURLToPath(new URL('../node_modules/tap/index.mjs', import.meta.url));
/** tap's own module, as its package exports it. */
const TAP = '../../../../node_modules/tap/dist/esm/index.js';
const SOURCE = `export default globalThis.${NAME} ?? (await import('${TAP}')).default;\n`;

/** Writes the module, if it is not there as it is here. Several processes may do so at once. */
export function writeTapModule(): string {
  if (existsSync(MODULE) && readFileSync(MODULE, 'utf8') === SOURCE) return MODULE;
  mkdirSync(dirname(MODULE), { recursive: true });
  for (const [path, text] of [
    [MODULE.replace('index.mjs', 'package.json'), '{"exports":"./index.mjs"}\n'],
    [MODULE, SOURCE],
  ] as const) {
    writeFileSync(`${path}.${process.pid}`, text);
    renameSync(`${path}.${process.pid}`, path);
  }
  return MODULE;
}

/** From now on `tap` is what `current` returns, for files that this process imports. They are run one after the other. */
export function standInForTap(current: () => Subtest): void {
  const handler: ProxyHandler<Subtest> = {
    get: (_, key) => {
      const test = current();
      const value: unknown = Reflect.get(test, key, test);
      return typeof value === 'function' ? (value.bind(test) as unknown) : value;
    },
    set: (_, key, value) => Reflect.set(current(), key, value),
  };
  Object.assign(globalThis, { [NAME]: new Proxy(current(), handler) });
}

/** Whether {@link standInForTap} was called in this process. */
export function isStandInForTap(): boolean {
  return NAME in globalThis;
}
