import t from 'tap';
import { loadUws, withoutBinary, type Load } from '../../../sidecar/http/uws.js';

t.test('a library that does not load is reported in one line: the platform, and what to install', async (t) => {
  const broken = (): Promise<never> => Promise.reject(new Error('a native\nstack'));
  const failure = await loadUws([broken, broken]).catch((error: unknown) => error);
  t.ok(failure instanceof Error);
  const { message } = failure as Error;
  t.match(message, new RegExp(`binary for Node ${process.versions.node} on linux \\w+, glibc \\d`));
  t.notMatch(message, /native|\n/);
});

t.test('the newest version that loads is used', async (t) => {
  const broken = (): Promise<never> => Promise.reject(new Error('GLIBC_2.38 not found'));
  const [newer, older] = [{ App: 'newer' }, { App: 'older' }] as unknown as Awaited<ReturnType<Load>>[];
  const give = (library: typeof newer) => () => Promise.resolve(library!);
  t.equal(await loadUws([give(newer), give(older)]), newer);
  t.equal(await loadUws([broken, give(older)]), older);
});

t.test('what is missing depends on Node, glibc and architecture', async (t) => {
  const debian13 = { node: '24.21.0', platform: 'linux', arch: 'arm64', glibc: '2.41' };
  t.match(withoutBinary(debian13), /without its binary .* arm64, glibc 2\.41: .*@uwsjs\/linux-arm64-24 /);
  t.match(
    withoutBinary({ ...debian13, arch: 'x64', glibc: '2.36' }),
    /no binary .* x64, glibc 2\.36: it needs glibc 2\.38/,
  );
  t.match(withoutBinary({ ...debian13, glibc: undefined }), /without glibc: it needs glibc 2\.38/);
  t.match(withoutBinary({ ...debian13, node: '21.0.0' }), /no binary for Node 21\.0\.0 .*: install Node 24/);
});
