/**
 * Unmodified clients and agent frameworks against the sidecar with the embedded model under `contract: compatible`.
 * Their packages are installed into an ignored folder by their own lock file; each client runs in its own process
 * (test/e2e/clients). For a single one: node dist/test/e2e/clients.e2e.js ai-7
 */
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { argv, env, execPath } from 'node:process';
import { promisify } from 'node:util';
import t from 'tap';
import { makeKey } from '../support/keys.js';
import { shortDir } from '../support/short-dir.js';
import { CHAT, Sidecar, type LogLine } from '../support/sidecar.js';
import { poolingModel } from '../support/pooling-models.js';
import { sourceRoot } from '../support/source-root.js';

const run = promisify(execFile);
const scripts = join(sourceRoot, 'test/e2e/clients');
/** Excluded from tests that read sources. */
const folder = join(sourceRoot, 'bench/.cache/clients');

/**
 * Refused for now, refused for a conversation that is too long, a stream that is kept alive, and an engine that ends in the middle of a
 * reply.
 */
const FAULTS = 'limited, tooLong, kept, lost';

/** Of each script, the steps that it must report. */
const CLIENTS: Readonly<Record<string, string>> = {
  'openai-5': `list, whole, reads, streamed, tools, structured, again, abort, errors, ${FAULTS}`,
  'openai-6': `list, whole, reads, streamed, tools, structured, again, abort, errors, ${FAULTS}, cold`,
  'openai-7': `list, whole, reads, streamed, tools, structured, again, abort, errors, ${FAULTS}`,
  'langchain-1.5': `whole, reads, streamed, tools, reactAgent, agent, structured, again, abort, errors, ${FAULTS}`,
  'langchain-newest': `whole, reads, streamed, tools, reactAgent, agent, structured, again, abort, errors, ${FAULTS}`,
  'agents-chat': `whole, streamed, tools, handOff, structured, again, abort, errors, ${FAULTS}`,
  'agents-responses': `whole, streamed, tools, handOff, structured, again, abort, errors, ${FAULTS}`,
  'ai-6': `whole, streamed, tools, toolsStreamed, structured, again, abort, errors, ${FAULTS}`,
  'ai-7': `whole, streamed, tools, toolsStreamed, structured, again, abort, errors, ${FAULTS}`,
  'ai-6-responses': `whole, streamed, tools, toolsStreamed, structured, again, abort, errors, ${FAULTS}`,
  'ai-7-responses': `whole, streamed, tools, toolsStreamed, structured, again, abort, errors, ${FAULTS}`,
  'openrouter-2.10': `whole, reads, streamed, tools, toolsStreamed, structured, again, abort, errors, ${FAULTS}`,
  'openrouter-3': `whole, reads, streamed, tools, toolsStreamed, structured, again, abort, errors, ${FAULTS}`,
  'openrouter-sdk': `whole, reads, streamed, tools, loop, structured, again, abort, errors, ${FAULTS}`,
  llamaindex: `whole, streamed, tools, agent, structured, again, leaves, errors, ${FAULTS}`,
  mastra: `whole, streamed, tools, structured, again, abort, errors, ${FAULTS}`,
  'anthropic-0': `list, whole, reads, streamed, count, tools, runner, structured, again, abort, errors, ${FAULTS}`,
  'anthropic-1': `list, whole, reads, streamed, count, tools, runner, structured, again, abort, errors, ${FAULTS}`,
  'ai-7-anthropic': `whole, streamed, tools, toolsStreamed, structured, again, abort, errors, ${FAULTS}`,
  'langchain-anthropic': `whole, streamed, tools, reactAgent, agent, structured, again, abort, errors, ${FAULTS}`,
  embeddings: 'openai-5, openai-6, openai-7, langchain, llamaindex, ai, cohere, ai-cohere',
  instructor: `list, whole, structured TOOLS, structured JSON_SCHEMA, streamed, again, abort, errors, ${FAULTS}`,
};

interface Step {
  readonly step: string;
  readonly ok: boolean;
  readonly why?: string;
}

/** Copies the scripts beside their packages, which are installed if the lock file has changed. */
function install(): void {
  mkdirSync(folder, { recursive: true });
  const lock = join(folder, 'package-lock.json');
  const stale = !existsSync(lock) || !readFileSync(lock).equals(readFileSync(join(scripts, 'package-lock.json')));
  if (stale || !existsSync(join(folder, 'node_modules'))) {
    for (const file of ['package.json', '.npmrc']) cpSync(join(scripts, file), join(folder, file));
    cpSync(join(scripts, 'package-lock.json'), lock);
    const { status, stderr } = spawnSync('npm', ['ci', '--ignore-scripts'], { cwd: folder, encoding: 'utf8' });
    if (status !== 0) throw new Error(stderr);
  }
  for (const file of readdirSync(scripts)) if (file.endsWith('.mjs')) cpSync(join(scripts, file), join(folder, file));
}

install();
/** The embedded model completes its calls; a model of random weights does not. */
const file = join(sourceRoot, 'engine/assets/seedling.gguf');
const EMBED = 'ra-tiny-embed';
const RANK = 'ra-tiny-rank';
const models = [
  { id: CHAT, kind: 'chat', file, seats: 2, contextPerSeat: 8192 },
  { id: EMBED, kind: 'embedding', file: await poolingModel('mean'), seats: 8, contextPerSeat: 512 },
  { id: RANK, kind: 'rerank', file: await poolingModel('rank'), seats: 8, contextPerSeat: 512 },
];
const limited = makeKey({
  limits: { chat: { inFlight: 1, perMinute: 1000 } },
  entitlements: { development: { models: 'all', tokensPerDay: 1e9 } },
});
const keys = join(shortDir(t), 'keys.json');
writeFileSync(keys, JSON.stringify({ version: 1, keys: [limited.stored] }));
// Each client has the engine killed once.
const engine = { backoffMinMs: 100, backoffMaxMs: 100 };
const KEEP_ALIVE_MS = 100;
const config = {
  models,
  contract: 'compatible',
  keys: { file: keys },
  engine,
  stream: { keepAliveMs: KEEP_ALIVE_MS },
};
const sidecar = await Sidecar.start(t, { config });
const asked = argv.slice(2);

/** A request that was refused for now. */
const isRefused = ({ event, status }: LogLine): boolean => event === 'request' && status === 429;
let refused = 0;

/** A start that takes this long, ms. */
const LONG_START_MS = 25_000;

/** Kills the engine, and holds the next one. */
async function restartsSlowly(): Promise<void> {
  const isForked = ({ event, model }: LogLine): boolean => event === 'engine forked' && model === CHAT;
  const forked = sidecar.lines.filter(isForked).length;
  process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
  await sidecar.logged('engine forked', forked + 1, isForked);
  const pid = sidecar.enginePid(CHAT);
  process.kill(pid, 'SIGSTOP');
  setTimeout(() => process.kill(pid, 'SIGCONT'), LONG_START_MS);
}

/** Holds the engine for some keep-alives. */
function pauses(): void {
  const pid = sidecar.enginePid(CHAT);
  process.kill(pid, 'SIGSTOP');
  setTimeout(() => process.kill(pid, 'SIGCONT'), 5 * KEEP_ALIVE_MS);
}

/** Where a client has the engine killed, also for a long time, or held, or waits until one more request was refused. */
const control = createServer((request, response) => {
  if (request.url === '/kill') {
    process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
    response.end();
  } else if (request.url === '/pause') {
    pauses();
    response.end();
  } else if (request.url === '/cold') void restartsSlowly().then(() => response.end());
  else void sidecar.logged('request', refused + 1, isRefused).then(() => response.end());
});
control.listen(0, '127.0.0.1');
await once(control, 'listening');
t.teardown(() => void control.close());
const controlUrl = `http://127.0.0.1:${(control.address() as AddressInfo).port}`;

/** A request whose caller disconnected. */
const isLeft = ({ event, status }: LogLine): boolean => event === 'request' && status === 499;

for (const [client, listed] of Object.entries(CLIENTS)) {
  if (asked.length > 0 && !asked.includes(client)) continue;
  t.test(client, async (t) => {
    const steps = listed.split(', ');
    const left = sidecar.lines.filter(isLeft).length;
    refused = sidecar.lines.filter(isRefused).length;
    const { stdout } = await run(execPath, ['run.mjs', client], {
      cwd: folder,
      env: {
        ...env,
        RA_BASE: sidecar.base,
        RA_KEY: sidecar.key,
        RA_LIMITED_KEY: limited.key,
        RA_MODEL: CHAT,
        RA_EMBED: EMBED,
        RA_RANK: RANK,
        RA_CONTROL: controlUrl,
      },
      maxBuffer: 2 ** 26,
    });
    const lines = stdout.split('\n').filter((line) => line.startsWith('{"step"'));
    const reported = lines.map((line) => JSON.parse(line) as Step);
    t.strictSame(
      reported.map(({ step }) => step),
      steps,
    );
    for (const { step, ok, why = '' } of reported) t.ok(ok, `${step} ${why}`);
    if (!steps.includes('abort')) return;
    // Without the client’s abort the reply would have thousands of tokens.
    t.match(await sidecar.logged('request', left + 1, isLeft), { status: 499 });
  });
}
