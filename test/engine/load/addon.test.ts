import { readFile } from 'node:fs/promises';
import type { Llama } from 'node-llama-cpp';
import t from 'tap';
import { isKnownNative, KNOWN_NATIVE } from '../../../engine/load/addon.js';

t.test('the version known is the one that is here', async (t) => {
  const source = await readFile(new URL('../../../../engine/native/next-token.cpp', import.meta.url), 'utf8');
  t.equal(Number(/^constexpr int VERSION = (\d+);$/m.exec(source)?.[1]), KNOWN_NATIVE);
});

t.test('an addon built from another version, or with nothing added, is not taken for it', (t) => {
  const of = (bindings: object): boolean => isKnownNative({ _bindings: bindings } as unknown as Llama);
  t.ok(of({ raVersion: KNOWN_NATIVE }));
  t.notOk(of({ raVersion: KNOWN_NATIVE - 1, RaPicker: () => undefined }));
  t.notOk(of({}));
  t.end();
});
