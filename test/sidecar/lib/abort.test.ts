import t from 'tap';
import { AbortHandle, type Signal } from '../../../sidecar/lib/abort.js';

const both: readonly (readonly [string, () => { signal: Signal; abort: () => void }])[] = [
  ['Aborter', () => ((one) => ({ signal: one, abort: () => one.abort() }))(new AbortHandle())],
  ['AbortController', () => ((one) => ({ signal: one.signal, abort: () => one.abort() }))(new AbortController())],
];

for (const [name, make] of both) {
  t.test(`${name}: listeners are called once, in their order; removed and late ones are not`, async (t) => {
    const { signal, abort } = make();
    const heard: string[] = [];
    const first = (): void => void heard.push(`first ${String(signal.aborted)}`);
    const left = (): void => void heard.push('left');
    signal.addEventListener('abort', first);
    signal.addEventListener('abort', left);
    signal.addEventListener('abort', () => heard.push('last'));
    signal.removeEventListener('abort', left);
    t.equal(signal.aborted, false);
    abort();
    abort();
    signal.addEventListener('abort', left);
    t.strictSame(heard, ['first true', 'last']);
    t.equal(signal.aborted, true);
  });

  t.test(`${name}: a listener’s exception is uncaught, and the next listener is called`, async (t) => {
    const { signal, abort } = make();
    const fault = new Error('a listener');
    const thrown = new Promise((resolve) => {
      process.setUncaughtExceptionCaptureCallback(resolve);
      t.teardown(() => process.setUncaughtExceptionCaptureCallback(null));
    });
    let next = false;
    signal.addEventListener('abort', () => {
      throw fault;
    });
    signal.addEventListener('abort', () => (next = true));
    abort();
    t.equal(next, true);
    t.equal(await thrown, fault);
  });
}
