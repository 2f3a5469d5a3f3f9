/**
 * A vision process: it counts the tokens of images and makes embeddings of them, for one model. Callers' files are parsed here
 * alone, so it is confined as far as the machine allows it once it has loaded its projector: it opens no files and no sockets,
 * starts nothing, and has a user of its own where it was started by root. Forked by the sidecar; it ends when its parent or its
 * link is gone, or at a message that is not of its protocol.
 */
import './protocol/leave-signals.js';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { setPriority } from 'node:os';
import { EmbeddingCache, ImageEncoder } from './llama/embedding-cache.js';
import { LoadFailure } from './llama/load-failure.js';
import { openVision, type Vision } from './llama/vision.js';
import { ENGINE_EXIT } from './protocol/messages.js';
import { Shell } from './protocol/shell.js';
import { systemText } from './protocol/usable-cores.js';
import {
  VISION_VERSION,
  type Confinement,
  type FromVision,
  type ToVision,
  type VisionSetup,
} from './protocol/vision-messages.js';

/** Running replies have precedence where they share cores with an encoder. */
const NICE = 10;

/** Users that systemd gives to services for as long as they run begin here; each process takes one by its id. */
const FIRST_USER = 61_184;
const USERS = 4096;

/** Memory of a projector's computation, JavaScript and its threads, besides what is known from the setup: a backstop. Bytes. */
const BESIDES = 4 * 2 ** 30;

/** Of a pixel: 32 while a file is decoded, and as many for what libmtmd makes of it. */
const PIXEL_BYTES = 64;

const clock = { now: () => performance.now() };

let vision: Vision | undefined;
let encoder: ImageEncoder | undefined;
let cache = new EmbeddingCache(0, 0, clock);

const shell: Shell<ToVision, FromVision> = new Shell(VISION_VERSION, {
  start: ({ setup }) => void start(setup),
  messages: {
    layout: ({ id, size }) => {
      try {
        if (vision) shell.send({ kind: 'layout', id, parts: vision.layout(size) });
        else shell.refuse();
      } catch {
        shell.send({ kind: 'refused', id, why: 'failed' });
      }
    },
    encode: ({ id, task }) => {
      if (encoder) void encoder.encode(task).then((end) => shell.send({ id, ...end }));
      else shell.refuse();
    },
    forget: ({ scope }) => {
      if (vision) cache.forget(scope);
      else shell.refuse();
    },
  },
});

async function start(setup: VisionSetup): Promise<void> {
  setPriority(NICE);
  try {
    const opened = await openVision(setup);
    const projectorVersion = await sha256(setup.projector);
    cache = new EmbeddingCache(setup.cacheBytes, setup.maxAgeMs, clock);
    const confinement = confine(opened, setup);
    vision = opened;
    encoder = new ImageEncoder(opened, cache);
    setInterval(() => {
      cache.expire();
      shell.send({ kind: 'heartbeat' });
    }, setup.heartbeatMs);
    shell.send({ kind: 'ready', facts: { projectorVersion, whole: opened.whole, confinement } });
  } catch (error) {
    // The operating system's errors, as of a disk that does not answer, may pass.
    const ofSystem = (error as NodeJS.ErrnoException).code !== undefined;
    const known = error instanceof LoadFailure || ofSystem;
    const reason = known && error instanceof Error ? error.message : 'unknown failure';
    unable({ reason, mayMend: error instanceof LoadFailure ? error.mayMend : ofSystem });
  }
}

function unable(why: Omit<Extract<FromVision, { kind: 'unable' }>, 'v' | 'kind'>): void {
  shell.send({ kind: 'unable', ...why }, () => process.exit(ENGINE_EXIT.unable));
}

/** The user before the filter, which allows no change of it. */
function confine(opened: Vision, { maxPixels, cacheBytes }: VisionSetup): Confinement {
  const ownUser = becomeUser();
  // What this process may write to by now, as the kernel counts it for the bound.
  const present = 1024 * Number(/^VmData:\s+(\d+) kB$/m.exec(systemText('/proc/self/status'))?.[1] ?? 0);
  const bytes = present + PIXEL_BYTES * maxPixels + cacheBytes + BESIDES;
  return { ownUser, ...opened.confine(bytes) };
}

function becomeUser(): boolean {
  if (process.getuid?.() !== 0) return false;
  const user = FIRST_USER + (process.pid % USERS);
  try {
    process.setgroups?.([]);
    process.setgid?.(user);
    process.setuid?.(user);
    return true;
  } catch {
    // In a container that has no such user.
    return false;
  }
}

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
