/**
 * Hostile images, and the process that decodes them. Argument: the number of mutated files;
 * TEST_LONG=1: 10,000.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deflateSync } from 'node:zlib';
import t from 'tap';
import { ensureProjector } from '../../bench/models/random-projector.js';
import { RandomWords } from '../../bench/models/random-weights.js';
import { Backoff, systemClock } from '../../sidecar/lib/clock.js';
import { imageSize } from '../../sidecar/prompts/images.js';
import { VisionClient } from '../../sidecar/vision/client.js';
import { WIDTH } from '../support/architectures.js';
import { canary } from '../support/canaries.js';
import { runCli } from '../support/cli.js';
import { RecordingLog } from '../support/in-process.js';
import { LeakSearch } from '../support/leak-search.js';
import { rounds } from '../support/long-form.js';
import { CACHE } from '../support/models.js';
import { childrenOf } from '../support/processes.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { jpeg, png, pngOf, stripes } from '../support/images.js';
import { imagePart, see, seeingModel, seeingSidecar, textPart, type Answer } from '../support/vision.js';

t.setTimeout(1_200_000);

const MUTATIONS = Number(process.argv[2] ?? rounds({ short: 1000, long: 10_000 }));
const CONFINED = fileURLToPath(new URL('../support/confined.js', import.meta.url));
const MIB = 2 ** 20;

const model = await seeingModel('mlp');
const dataDir = t.testdir();
const sidecar = await seeingSidecar(t, model, { vision: { maxImages: 64 }, config: { dataDir } });

function visionPid(): number {
  return Number(sidecar.lines.filter(({ event }) => event === 'vision ready').at(-1)?.['pid']);
}

function status(pid: number, field: string): string {
  return new RegExp(`^${field}:[ \\t]*(.*)$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
}

const seatsBusy = (count: number): Promise<void> => sidecar.reaches('ra_sidecar_seats_busy', count);

/** The sum of the peaks of the sidecar, its prompt hosts and its engine: of all but the vision process. */
function othersMiB(): number {
  const others = [sidecar.pid, ...childrenOf(sidecar.pid).map(({ pid }) => pid)].filter((pid) => pid !== visionPid());
  return others.reduce((sum, pid) => sum + peakMiB(pid), 0);
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
    calls: {
      setOwner: 'EPERM',
      setOwnerWide: 'EPERM',
      setOwnerOfKind: 'EPERM',
      setSignal: 'EPERM',
      controlOwner: 'EPERM',
      controlGroup: 'EPERM',
      controlAsync: 'EPERM',
      setLimit: 'EPERM',
      flags: 'done',
      nonBlocking: 'done',
      getLimit: 'done',
    },
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
  const [before, othersBefore] = [peakMiB(visionPid()), othersMiB()];
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
  const padded = Buffer.concat([png(8, 8), Buffer.alloc(12 * MIB - 4096)]);
  t.equal((await ask(imagePart(padded))).status, 200, 'a URL of 16 MiB');
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
  const others = othersMiB() - othersBefore;
  t.comment(`peaks of the sidecar, its prompt hosts and its engine: ${Math.round(others)} MiB more in all`);
  t.ok(others < 512);
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
  await seatsBusy(1);
  const beside = await ask(textPart('Text goes on.'));
  t.equal(beside.status, 200);
  const second = ask(imagePart(png(50, 50, stripes(31))), textPart('b'));
  await seatsBusy(2);
  // Its reply comes behind what the engine wants for the two.
  await ask(textPart('Text goes on.'));
  process.kill(pid, 'SIGKILL');
  const [failed, other] = await Promise.all([first, second]);
  t.same([failed.status, failed.error.code], [502, 'bad_gateway']);
  t.equal(other.status, 200, 'waiting images are sent to the next process');
  await sidecar.logged('vision ready', 2);
  t.equal((await ask(imagePart(png(50, 50, stripes(31))), textPart('b'))).status, 200);
});

t.test(`${MUTATIONS} mutated files end no other process`, async (t) => {
  const log = new RecordingLog();
  const setup = {
    ...model,
    threads: 1,
    maxPixels: 100_000,
    cacheBytes: 0,
    heartbeatMs: 1000,
    maxAgeMs: 1000,
    gpu: false as const,
  };
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
    const { result } = client.encode({ digest: new Uint8Array(32), scope: 's', bytes, size, shrunk: size }, 's');
    count((await result).kind);
  }
  t.comment(JSON.stringify(seen));
  t.notOk(seen['failed'], 'none ended the process');
  t.ok((seen['undecodable'] ?? 0) > MUTATIONS / 20);
  t.equal((await ask(textPart('Still there?'))).status, 200);
});

t.test(
  'nothing of an image is in logs, metrics, the console, the spool, or what the machine’s users see',
  async (t) => {
    const watch = new RetentionWatch();
    const secret = canary();
    // Behind the image, where decoders do not look, and as its pixels.
    const words = Buffer.from(secret.repeat(4), 'latin1');
    const files = [
      Buffer.concat([png(61, 61, stripes(91)), words]),
      Buffer.concat([png(64, 64, stripes(92)).subarray(0, 200), words]),
      png(words.length, 9, (x) => [words[x] ?? 0, words[x + 1] ?? 0, words[x + 2] ?? 0]),
    ];
    for (const file of files) await ask(textPart('What?'), imagePart(file));
    // One over which its process dies.
    process.kill(visionPid(), 'SIGSTOP');
    const lost = ask(imagePart(png(61, 61, stripes(93))), textPart(secret));
    await seatsBusy(1);
    await ask(textPart('Text goes on.'));
    process.kill(visionPid(), 'SIGKILL');
    t.equal((await lost).status, 502);
    await watch.files(dataDir);
    watch.processes(sidecar.pid);
    watch.output(sidecar);
    await watch.pages(sidecar);
    const digests = files.flatMap((file) => {
      const digest = createHash('sha256').update(file).digest();
      return [digest.toString('hex'), digest.toString('base64'), file.subarray(-60).toString('base64')];
    });
    t.same(watch.leaks(new LeakSearch([secret, ...digests])), []);
    const log = JSON.stringify(sidecar.lines) + sidecar.printed;
    t.notMatch(log, /iVBOR|data:image|[0-9a-f]{64}/);
  },
);

t.test('models verify and doctor: the projector fits, the memory of both, and what confines its process', async (t) => {
  const config = (projector: string, more: object = {}): Record<string, string> => ({
    RA_DATA_DIR: t.testdir(),
    RA_MODELS: JSON.stringify([
      {
        id: 'seeing',
        kind: 'chat',
        file: model.file,
        contextPerSeat: 1024,
        gpu: false,
        vision: { projector, ...more },
      },
    ]),
  });
  const fits = /the projector fits, takes [\d.]+ MiB of memory; system calls filtered, memory bounded/;
  const verified = await runCli(['models', 'verify'], config(model.projector));
  t.equal(verified.code, 0, verified.stderr);
  t.match(verified.stdout, fits);
  t.match((await runCli(['doctor'], config(model.projector))).stdout, fits);
  const narrow = await ensureProjector(join(CACHE, 'models'), 'mlp', 2 * WIDTH);
  for (const [projector, says] of [
    [narrow, /the projector cannot be used: .*mismatch/],
    [model.file, /names no clip\.projector_type/],
    [`${model.projector}.gone`, /the projector: the file does not exist/],
  ] as const) {
    const refused = await runCli(['models', 'verify'], config(projector));
    t.equal(refused.code, 1);
    t.match(refused.stdout + refused.stderr, says);
  }
});

t.test('a GPU that is not there', async (t) => {
  const models = [{ id: 'seeing', kind: 'chat', file: model.file, vision: { projector: model.projector, devices: 9 } }];
  const refused = await runCli(['models', 'verify'], { RA_DATA_DIR: t.testdir(), RA_MODELS: JSON.stringify(models) });
  t.equal(refused.code, 1);
  t.match(refused.stdout + refused.stderr, /vision\.devices is set, and no GPU was found for the encoder/);
});
