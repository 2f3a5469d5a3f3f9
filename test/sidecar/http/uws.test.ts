import t from 'tap';
import { loadUws } from '../../../sidecar/http/uws.js';

t.test('a library that does not load is one line: what is there, and what to install', async (t) => {
  const failure = await loadUws(() => Promise.reject(new Error('a native\nstack'))).catch((error: unknown) => error);
  t.ok(failure instanceof Error);
  const { message } = failure as Error;
  t.match(message, new RegExp(`no binary for Node ${process.versions.node} on linux \\w+, glibc \\d`));
  t.match(message, /install Node 22/);
  t.notMatch(message, /native|\n/);
});
