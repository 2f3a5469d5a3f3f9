/**
 * Which source files one real request enters, counted by V8: `node dist/test/support/entered-files.js [kind ...]` after `make build`,
 * where kind is chat, decision, reload or delivery; by default all of them. Prints for each kind the number of files and their names, by
 * process.
 *
 * A file is entered if one of its functions was called more often than in the same time without a request, by more than one call:
 * engines send signs of life, timers run. What runs when a module is loaded does not count. Each kind was done before, so that nothing
 * is loaded or connected in between.
 */
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { SourceMap, type SourceMapPayload } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { CHAT, DECIDE, Sidecar } from './sidecar.js';
import { sourceRoot } from './source-root.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SOURCES = `${sourceRoot}/`;

/** Written on the signal: the calls since the last time. */
const TAKES = `process.on('SIGUSR2', () => require('node:v8').takeCoverage());`;
/** What is still running after the answer has ended by then: the close of its record, its line of log, the trace. */
const SETTLED_MS = 1000;

interface Written {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly {
      readonly ranges: readonly { readonly startOffset: number; readonly count: number }[];
    }[];
  }[];
}

const folder = mkdtempSync(join(tmpdir(), 'ra-entered-'));
const teardowns: (() => unknown)[] = [];
const owner = { teardown: (fn: () => unknown): number => teardowns.push(fn) };

/** Starts a sidecar with both models, whose processes count; usage is delivered to `sink`. */
async function started(sink?: string): Promise<Sidecar> {
  const hook = `data:text/javascript,${encodeURIComponent(`import { createRequire } from 'node:module';const require = createRequire('/');${TAKES}`)}`;
  return await Sidecar.start(owner, {
    config: { development: {}, ...(sink !== undefined && { delivery: { url: sink, maxAgeMs: 0 } }) },
    environment: { NODE_V8_COVERAGE: folder, NODE_OPTIONS: `--import=${hook}` },
  });
}

/** The process and its descendants. */
function family(pid: number): number[] {
  const children = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => parentOf(name) === pid);
  return [pid, ...children.flatMap((name) => family(Number(name)))];
}

function parentOf(pid: string): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return undefined;
  }
}

const isNode = (pid: number): boolean => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('.js');

/** Calls of each function, by the script that its process runs, its file and its place. */
type Calls = ReadonlyMap<string, ReadonlyMap<string, ReadonlyMap<number, number>>>;

/** Calls since the last time. */
async function calls(sidecar: Sidecar): Promise<Calls> {
  await sleep(SETTLED_MS);
  const processes = family(sidecar.pid).filter(isNode);
  for (const pid of processes) process.kill(pid, 'SIGUSR2');
  await sleep(SETTLED_MS);
  const all = new Map<string, Map<string, Map<number, number>>>();
  for (const name of readdirSync(folder)) {
    const pid = Number(/^coverage-(\d+)-/.exec(name)?.[1]);
    const { result } = JSON.parse(readFileSync(join(folder, name), 'utf8')) as Written;
    rmSync(join(folder, name));
    const main = scriptOf(pid);
    const files = all.get(main) ?? new Map<string, Map<number, number>>();
    all.set(main, files);
    for (const { url, functions } of result) {
      if (!url.startsWith(`file://${ROOT}`)) continue;
      const source = sourcesOf(fileURLToPath(url));
      // The function that begins where the file does is the module itself.
      for (const { ranges } of functions) {
        const [{ startOffset, count } = { startOffset: 0, count: 0 }] = ranges;
        const path = startOffset > 0 ? source(startOffset) : undefined;
        if (path === undefined || !/^(sidecar|engine)\//.test(path)) continue;
        const counts = files.get(path) ?? new Map<number, number>();
        files.set(path, counts);
        counts.set(startOffset, (counts.get(startOffset) ?? 0) + count);
      }
    }
  }
  return all;
}

const known = new Map<string, (offset: number) => string | undefined>();

/** The source file of each place of a compiled module, by its source map: a program is one module of many sources. */
function sourcesOf(module: string): (offset: number) => string | undefined {
  const found = known.get(module);
  if (found) return found;
  const text = readFileSync(module, 'utf8');
  const map = new SourceMap(JSON.parse(readFileSync(`${module}.map`, 'utf8')) as SourceMapPayload);
  const lines = [0, ...Array.from(text.matchAll(/\n/g), ({ index }) => index + 1)];
  const source = (offset: number): string | undefined => {
    const line = lines.findLastIndex((from) => from <= offset);
    const entry = map.findEntry(line, offset - (lines[line] ?? 0));
    return 'originalSource' in entry ? resolve(dirname(module), entry.originalSource).slice(SOURCES.length) : undefined;
  };
  known.set(module, source);
  return source;
}

/** The files that have a function with more calls than `idle` has of it, and one more. */
async function entered(sidecar: Sidecar, idle: Calls): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  return new Map(
    Array.from(await calls(sidecar), ([script, files]) => {
      const before = idle.get(script);
      const more = ([path, counts]: [string, ReadonlyMap<number, number>]): boolean =>
        [...counts].some(([place, count]) => {
          const usual = before?.get(path)?.get(place) ?? 0;
          return count > (usual === 0 ? 0 : usual + 1);
        });
      return [script, new Set([...files].filter(more).map(([path]) => path))] as const;
    }),
  );
}

function scriptOf(pid: number): string {
  try {
    const script = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
      .split('\0')
      .find((each) => each.endsWith('.js'));
    return script?.replace(ROOT, '').replace(/\.js$/, '.ts') ?? 'another process';
  } catch {
    return 'a process that ended';
  }
}

const chat = async (sidecar: Sidecar): Promise<string> =>
  await (await sidecar.chat({ stream: true, max_tokens: 16, messages: [{ role: 'user', content: 'Hello' }] })).text();

const decision = async (sidecar: Sidecar): Promise<string> =>
  await (
    await sidecar.post('/decisions', {
      model: DECIDE,
      input: 'Water boils at 100 degrees.',
      questions: [{ id: 'q', type: 'yes_no', question: 'Is it true?' }],
    })
  ).text();

const reload = async ({ operatorsPort }: Sidecar): Promise<string> =>
  await (
    await fetch(`http://127.0.0.1:${operatorsPort}/models/reload`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: CHAT }),
    })
  ).text();

function print(kind: string, said: string, all: ReadonlyMap<string, ReadonlySet<string>>): void {
  const files = new Set([...all.values()].flatMap((each) => [...each]));
  process.stdout.write(`\n## ${kind}: ${files.size} files (answer: ${said.slice(0, 60).replaceAll('\n', ' ')})\n`);
  for (const [script, entries] of [...all].filter(([, { size }]) => size > 0).sort())
    process.stdout.write(
      `\n${script}: ${entries.size}\n${[...entries]
        .sort()
        .map((each) => `  ${each}\n`)
        .join('')}`,
    );
}

const kinds = process.argv.slice(2);
const wanted = (kind: string): boolean => kinds.length === 0 || kinds.includes(kind);
const whole = { chat, decision, reload };
if (Object.keys(whole).some(wanted)) {
  const sidecar = await started();
  for (const [kind, run] of Object.entries(whole).filter(([each]) => wanted(each))) {
    for (let i = 0; i < 2; i++) await run(sidecar);
    await calls(sidecar);
    const idle = await calls(sidecar);
    const said = await run(sidecar);
    print(kind, said, await entered(sidecar, idle));
  }
}
if (wanted('delivery')) {
  let takes = false;
  let got = (): void => undefined;
  const sink = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(takes ? 204 : 503).end();
      if (takes) got();
    });
  }).listen(0, '127.0.0.1');
  await once(sink, 'listening');
  teardowns.push(() => void sink.close());
  const sidecar = await started(`http://127.0.0.1:${(sink.address() as AddressInfo).port}/`);
  const delivered = (): Promise<void> => new Promise((resolve) => (got = resolve));
  for (const measured of [false, true]) {
    takes = false;
    await chat(sidecar);
    await calls(sidecar);
    const idle = await calls(sidecar);
    takes = true;
    await delivered();
    if (measured) print('delivery', 'delivered', await entered(sidecar, idle));
  }
}
for (const end of teardowns.reverse()) await end();
rmSync(folder, { recursive: true, force: true });
process.exit(0);
