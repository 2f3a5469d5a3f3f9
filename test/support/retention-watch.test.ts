/** Tests the search for leaks itself: each form and each place is found. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { canary, MARK } from './canaries.js';
import { LeakSearch, PIECE } from './leak-search.js';
import { PLACES, RetentionWatch, type Place } from './retention-watch.js';

const KEY = 'ra-test-Zq3vT8_kLm0-WxY7bN2cD5fG9hJ1pR4sU6aE0iOtQzX';
const search = new LeakSearch([MARK, KEY], ['quietly the harbour']);

t.test('each form is found, whole and in part', (t) => {
  const escaped = Array.from(canary(), (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
  const percent = Array.from(KEY, (c) => `%${c.charCodeAt(0).toString(16)}`).join('');
  const bytes = Buffer.from(`x${KEY}`);
  for (const [shape, text] of Object.entries({
    plain: `a ${canary()} b`,
    'upper case': canary().toUpperCase(),
    'JSON escapes': `{"a":"${escaped}"}`,
    'URL escapes': percent,
    'two bytes a character': Buffer.from(canary(), 'utf16le').toString('latin1'),
    'its first characters': `"${MARK.slice(0, PIECE)}…`,
    'the key’s beginning': KEY.slice(0, PIECE),
    'the key’s end': KEY.slice(-PIECE),
    'from anywhere in it': KEY.slice(5, 5 + 2 * PIECE - 1),
    hexadecimal: Buffer.from(`. ${canary()}`).toString('hex'),
    'upper-case hexadecimal': Buffer.from(KEY).toString('hex').toUpperCase(),
    'a phrase': 'it says Quietly the harbour sleeps',
    ...Object.fromEntries([0, 1, 2].map((from) => [`base64 from ${from}`, bytes.subarray(from).toString('base64')])),
    base64url: Buffer.from(`??>${KEY}~~~`).toString('base64url'),
  })) {
    t.ok(search.find(text), shape);
  }
  for (const text of [
    '',
    'kanarien',
    'ra-test-',
    'quietly, the harbour',
    'request finished',
    KEY.slice(3, 3 + PIECE),
  ]) {
    t.equal(search.find(text), undefined, text);
  }
  t.throws(() => new LeakSearch(['short']), /by chance/);
  t.end();
});

/** A watch with clean texts everywhere, except `plant` in one of its places. */
async function planted(t: Test, place: Place, plant: string, page = '/admission'): Promise<RetentionWatch> {
  const watch = new RetentionWatch();
  const at = (here: Place): string => (here === place ? plant : 'clean');
  watch.output({ lines: [{ event: at('stdout') }], printed: at('stderr') });
  watch.saw('events', `[{"data":"${at('events')}"}]`);
  watch.command({ stdout: 'clean', stderr: at('commands') });
  watch.saw('otlp', `\n\u0007${at('otlp')}\u0012`);
  await watch.refused(new Response(`{"error":{"code":"a","message":"${at('errors')}"}}`));
  await watch.replied(new Response(`{"content":"${plant}"}`, { headers: { 'x-request-id': at('heads') } }));

  const server = createServer((request, response) => {
    const text = request.url === page ? at('pages') : 'clean';
    response.end(request.url === '/console/events' ? `data: {"a":"${text}"}\n\n` : text);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await watch.pages({ port, operatorsPort: port });
  server.closeAllConnections();
  server.close();

  const dir = join(t.testdir(), 'data');
  await mkdir(join(dir, 'usage'), { recursive: true });
  await writeFile(join(dir, 'usage', '1.seg'), `7 00 {"a":"${at('files')}"}`);
  await watch.files(dir);

  const child = spawn('sleep', ['1000'], { argv0: at('processes') });
  t.teardown(() => child.kill('SIGKILL'));
  await once(child, 'spawn');
  watch.processes(Number(child.pid));
  return watch;
}

t.test('each place is searched', async (t) => {
  for (const place of PLACES) {
    const watch = await planted(t, place, canary());
    t.strictSame(watch.places, [...PLACES]);
    const leaks = watch.leaks(search);
    t.strictSame(
      leaks.map((leak) => leak.place),
      [place],
    );
    t.match(leaks[0]?.found, MARK);
  }
  for (const page of ['/metrics', '/console/events', '/v1/openapi.json']) {
    const watch = await planted(t, 'pages', canary(), page);
    t.match(watch.leaks(search)[0]?.found, MARK, page);
  }
  const watch = await planted(t, 'stdout', 'nothing');
  t.strictSame(watch.leaks(search), []);
  t.strictSame(new RetentionWatch().places, [], 'a place without a text does not count as searched');
});
