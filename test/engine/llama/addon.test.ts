import { readFile } from 'node:fs/promises';
import type { Llama, LlamaContext } from 'node-llama-cpp';
import t from 'tap';
import { keepThreads, nativeCodeOf } from '../../../engine/llama/addon.js';
import { KNOWN_NATIVE, picking } from '../../../engine/llama/picking.js';

const RaPicker = class {
  readonly picked = (): Int32Array => new Int32Array(0);
};
const NATIVE = {
  RaPicker,
  raDecodeRun: () => Promise.reject(new Error('no run')),
  raClearMemory: () => undefined,
};

t.test('the supported version is the installed one', async (t) => {
  const source = await readFile(new URL('../../../../engine/native/next-token.cpp', import.meta.url), 'utf8');
  t.equal(Number(/^constexpr int VERSION = (\d+);$/m.exec(source)?.[1]), KNOWN_NATIVE);
});

t.test('an addon of another version is not used', (t) => {
  const used = (bindings: object): readonly unknown[] => {
    const kept: unknown[] = [];
    const raUseThreads = (...args: readonly unknown[]): unknown => kept.push(args.slice(1));
    const context = { _ctx: {}, _llama: { _bindings: { ...bindings, raUseThreads } } };
    keepThreads(context as unknown as LlamaContext, 3, { threads: -1, logits: 7 });
    return [picking(bindings).picking !== undefined, kept];
  };
  t.same(used({ ...NATIVE, raVersion: KNOWN_NATIVE }), [true, [[3, 0, 7]]]);
  t.same(used({ ...NATIVE, raVersion: KNOWN_NATIVE - 1 }), [false, []]);
  t.same(used(NATIVE), [false, []]);
  t.same(used({}), [false, []]);
  t.end();
});

t.test('its thread ends with the process, and the exit listener is added once', (t) => {
  const raLeave = (): void => undefined;
  t.teardown(() => process.off('exit', raLeave));
  const bindings = { ...NATIVE, raVersion: KNOWN_NATIVE, raUseThreads: () => undefined, raLeave };
  const context = { _ctx: {}, _llama: { _bindings: bindings } } as unknown as LlamaContext;
  keepThreads(context, 1);
  keepThreads(context, 1);
  t.equal(process.listeners('exit').filter((listener) => listener === raLeave).length, 1);
  t.end();
});

t.test('it is outdated if its version is missing or another one', (t) => {
  const outdated = (bindings: object): boolean =>
    nativeCodeOf({ _bindings: bindings } as unknown as Llama) === 'outdated';
  t.notOk(outdated({ ...NATIVE, raVersion: KNOWN_NATIVE }));
  t.ok(outdated({ ...NATIVE, raVersion: KNOWN_NATIVE + 1 }));
  t.ok(outdated(NATIVE));
  t.notOk(outdated({}), 'not built from this repository');
  t.end();
});
