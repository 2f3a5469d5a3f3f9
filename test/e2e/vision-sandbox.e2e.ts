/**
 * Hostile images, and the process that decodes them. Needs `make engine-native`. Argument: the number of mutated files.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { deflateSync } from 'node:zlib';
import t from 'tap';
import { RandomWords } from '../../bench/models/random-weights.js';
import { Backoff } from '../../sidecar/lib/backoff.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { imageSize } from '../../sidecar/prompts/image-head.js';
import { VisionClient } from '../../sidecar/vision/client.js';
import { RecordingLog } from '../support/in-process.js';
import { dataUrl, jpeg, png, pngOf, stripes } from '../support/images.js';
import { imagePart, see, seeingModel, seeingSidecar, textPart, type Answer } from '../support/vision.js';

t.setTimeout(1_200_000);

const MUTATIONS = Number(process.argv[2] ?? 1000);
const CONFINED = fileURLToPath(new URL('../support/confined.js', import.meta.url));
const MIB = 2 ** 20;

const model = await seeingModel('mlp');
const sidecar = await seeingSidecar(t, model, { vision: { maxImages: 64 } });

function visionPid(): number {
  return Number(sidecar.lines.filter(({ event }) => event === 'vision ready').at(-1)?.['pid']);
}

function status(pid: number, field: string): string {
  return new RegExp(`^${field}:[ \\t]*(.*)$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
}

const peakMiB = (pid: number): number => Number.parseInt(status(pid, 'VmHWM'), 10) / 1024;
const user = (...content: object[]): object => ({ role: 'user', content });
const ask = (...content: object[]): Promise<Answer> => see(sidecar, [user(...content)], { max_completion_tokens: 2 });

t.test('what a confined process cannot do', async (t) => {
  const { stdout, signal } = spawnSync(process.execPath, [CONFINED, model.file, model.projector], { encoding: 'utf8' });
  t.same(JSON.parse(stdout), {
    confinement: { bounded: true, filtered: true },
    read: 'EPERM',
    projector: 'EPERM',
    write: 'EPERM',
    stat: 'EPERM',
    connected: 'EPERM',
    spawned: 'EPERM',
    signalled: 'EPERM',
    itself: 'done',
    layout: true,
  });
  t.equal(signal, 'SIGKILL', 'it may end itself');
});

t.test('the running process is confined and has none of the sidecar’s files', async (t) => {
  const pid = visionPid();
  t.equal(status(pid, 'Seccomp'), '2');
  t.equal(status(pid, 'NoNewPrivs'), '1');
  if (process.getuid?.() === 0) {
    t.notMatch(status(pid, 'Uid'), /\b0\b/);
    t.equal(status(pid, 'Groups').trim(), '');
  }
  const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').filter(Boolean);
  const names = environment.map((entry) => entry.slice(0, entry.indexOf('=')));
  const known = ['GGML_NO_BACKTRACE', 'LANG', 'LD_LIBRARY_PATH', 'PATH', 'TZ', 'UV_THREADPOOL_SIZE'];
  t.same(
    names.filter((name) => !known.includes(name)),
    [],
  );
  const open = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  const files = open.filter((path) => path.startsWith('/') && path !== '/dev/null' && !path.includes('urandom'));
  t.same(files, [], 'no file is open');
  // Node’s stderr and the link.
  t.ok(open.filter((path) => path.startsWith('socket:')).length <= 2, open.join(' '));
});

t.test('other file types, damaged files and decompression bombs are answered 400, in bounded memory', async (t) => {
  await ask(imagePart(png(300, 300)));
  const before = peakMiB(visionPid());
  const whole = png(64, 64, stripes(2));
  const tga = Buffer.concat([
    Buffer.from([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa0, 0x0f, 0xa0, 0x0f, 24, 0]),
    Buffer.alloc(64),
  ]);
  const rows = deflateSync(Buffer.alloc(1024 * MIB), { level: 9 });
  const files: Readonly<Record<string, Uint8Array>> = {
    'a cut PNG': whole.subarray(0, whole.length - 100),
    'a cut JPEG head': jpeg(64, 64, () => 1).subarray(0, 100),
    TGA: tga,
    BMP: Buffer.from('BM' + '\0'.repeat(60), 'latin1'),
    GIF: Buffer.from('GIF89a\x01\x00\x01\x00\x00\x00\x00;', 'latin1'),
    SVG: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'),
    'rows of a gigabyte': pngOf(100, 100, rows),
    'few rows': pngOf(3000, 3000, deflateSync(Buffer.alloc(100))),
    'a size of gigabytes': pngOf(100_000, 100_000, rows.subarray(0, 1000)),
    'no rows': pngOf(10, 10, Buffer.alloc(0)),
  };
  const pid = visionPid();
  for (const [name, file] of Object.entries(files)) {
    const answer = await ask(textPart('What?'), imagePart(file));
    t.equal(answer.status, 400, `${name}: ${answer.error.message ?? answer.text}`);
    t.equal(answer.error.code, 'bad_request');
  }
  const large = dataUrl(Buffer.concat([png(8, 8), Buffer.alloc(12 * MIB - 4096)]));
  const padded = await see(sidecar, [user({ type: 'image_url', image_url: { url: large } })], {
    max_completion_tokens: 2,
  });
  t.ok([200, 400, 413].includes(padded.status), `a URL of ${large.length} characters: ${padded.status}`);
  const tiny = imagePart(png(1, 1));
  const many = await ask(...Array.from({ length: 4096 }, () => tiny));
  t.equal(many.status, 400);
  t.match(many.error.message, /more than the 64/);
  const url = await ask({ type: 'image_url', image_url: { url: 'https://127.0.0.1:1/a.png' } });
  t.match(url.error.message, /no URL is fetched/);
  t.equal(visionPid(), pid, 'the process was not restarted');
  const after = peakMiB(pid);
  t.comment(`peak of the vision process: ${Math.round(before)} MiB before, ${Math.round(after)} MiB after`);
  t.ok(after - before < 512, `${Math.round(after - before)} MiB more`);
  t.equal((await ask(imagePart(png(30, 30)))).status, 200);
});

t.test('image marks of other servers in a user’s text are text', async (t) => {
  const answer = await ask(textPart('<__media__><image><|vision_start|>'), imagePart(png(20, 20)), textPart('\ue000'));
  t.equal(answer.status, 200);
});

t.test('a process that ends over an image fails that image only, and no request hangs', async (t) => {
  const pid = visionPid();
  // Its layout is known from then on.
  await ask(imagePart(png(50, 50)));
  process.kill(pid, 'SIGSTOP');
  const first = ask(imagePart(png(50, 50, stripes(30))), textPart('a'));
  const beside = await ask(textPart('Text goes on.'));
  t.equal(beside.status, 200);
  await new Promise((resolve) => setTimeout(resolve, 200));
  const second = ask(imagePart(png(50, 50, stripes(31))), textPart('b'));
  await new Promise((resolve) => setTimeout(resolve, 200));
  process.kill(pid, 'SIGKILL');
  const [failed, other] = await Promise.all([first, second]);
  t.same([failed.status, failed.error.code], [502, 'bad_gateway']);
  t.equal(other.status, 200, 'waiting images are sent to the next process');
  await sidecar.logged('vision ready', 2);
  t.equal((await ask(imagePart(png(50, 50, stripes(31))), textPart('b'))).status, 200);
});

t.test('a caller that disconnects while its image is encoded frees its seat', async (t) => {
  process.kill(visionPid(), 'SIGSTOP');
  const left = new AbortController();
  const body = { model: 'seeing', messages: [user(imagePart(png(50, 50, stripes(40))))], max_completion_tokens: 2 };
  const request = sidecar.post('/chat/completions', body, { signal: left.signal });
  request.catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 300));
  left.abort();
  await t.rejects(request);
  const all = await Promise.all(Array.from({ length: 4 }, () => ask(textPart('Four seats.'))));
  t.same(
    all.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  process.kill(visionPid(), 'SIGCONT');
  t.equal((await ask(imagePart(png(50, 50, stripes(41))))).status, 200);
});

t.test(`${MUTATIONS} mutated files end no other process`, async (t) => {
  const log = new RecordingLog();
  const setup = { ...model, threads: 1, maxPixels: 100_000, cacheBytes: 0, heartbeatMs: 1000 };
  const client = new VisionClient({
    setup,
    clock: systemClock,
    log,
    model: 'm',
    backoff: new Backoff(10, 100, () => 0),
  });
  t.teardown(() => client.close());
  client.start();
  await log.seen('vision ready');
  const random = new RandomWords(5);
  const below = (most: number): number => (random.next() >>> 0) % most;
  const files = [png(40, 30), png(7, 9, stripes(4)), jpeg(48, 40, (x, y) => x * 9 - y * 5), jpeg(16, 16, () => 3)];
  const seen: Record<string, number> = {};
  const count = (kind: string): void => void (seen[kind] = (seen[kind] ?? 0) + 1);
  for (let round = 0; round < MUTATIONS; round++) {
    const file = Buffer.from(files[round % files.length] ?? []);
    for (let change = below(6); change >= 0; change--) file[below(file.length)] = below(256);
    const bytes = below(4) === 0 ? file.subarray(0, below(file.length)) : file;
    const size = imageSize(bytes);
    if (size === undefined || size.width * size.height > setup.maxPixels) {
      count('refused by its header');
      continue;
    }
    const { result } = client.encode({ digest: new Uint8Array(32), bytes, size, shrunk: size });
    count((await result).kind);
  }
  t.comment(JSON.stringify(seen));
  t.notOk(seen['failed'], 'none ended the process');
  t.ok((seen['undecodable'] ?? 0) > MUTATIONS / 20);
  t.equal((await ask(textPart('Still there?'))).status, 200);
});

t.test('the log has nothing of an image', async (t) => {
  const text = JSON.stringify(sidecar.lines) + sidecar.printed;
  t.notMatch(text, /iVBOR|data:image|[0-9a-f]{64}/);
});
