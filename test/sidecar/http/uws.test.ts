import t from 'tap';
import { loadUws, type Load } from '../../../sidecar/http/uws.js';

t.test('a library that does not load is reported in one line: the platform, and what to install', async (t) => {
  const broken = (): Promise<never> => Promise.reject(new Error('a native\nstack'));
  const failure = await loadUws([broken, broken]).catch((error: unknown) => error);
  t.ok(failure instanceof Error);
  const { message } = failure as Error;
  t.match(message, new RegExp(`no binary for Node ${process.versions.node} on linux \\w+, glibc \\d`));
  t.match(message, /Node 22/);
  t.notMatch(message, /native|\n/);
});

t.test('the newest version that loads is used', async (t) => {
  const broken = (): Promise<never> => Promise.reject(new Error('GLIBC_2.38 not found'));
  const [newer, older] = [{ App: 'newer' }, { App: 'older' }] as unknown as Awaited<ReturnType<Load>>[];
  const give = (library: typeof newer) => () => Promise.resolve(library!);
  t.equal(await loadUws([give(newer), give(older)]), newer);
  t.equal(await loadUws([broken, give(older)]), older);
});
