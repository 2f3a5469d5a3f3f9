/**
 * Coding agents, unmodified and without a terminal, against a sidecar under `contract: compatible`. The model's replies are scripted: a
 * stub stands for the server that computes them, so that each agent meets a call, an interruption, a full context, a 429 and an engine
 * process that is killed within a reply.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { argv, env } from 'node:process';
import t from 'tap';
import { loadTokenFile } from '../../engine/llama/model-tokens.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import { ACME, InProcess } from '../support/in-process.js';
import { png } from '../support/images.js';
import { embeddedTestModel } from '../support/models.js';
import { ServerStub } from '../support/server-stub.js';
import { sourceRoot } from '../support/source-root.js';

const scripts = join(sourceRoot, 'test/e2e/agents');
/** Excluded from tests that read sources. */
const folder = join(sourceRoot, 'bench/.cache/agents');
/** A run that takes longer hangs. */
const RUN_MS = 120_000;

/** Installs their packages if the wanted versions have changed. They have no other dependencies than their binaries. */
function install(): void {
  mkdirSync(folder, { recursive: true });
  const wanted = readFileSync(join(scripts, 'package.json'), 'utf8');
  const file = join(folder, 'package.json');
  if (existsSync(join(folder, 'node_modules')) && existsSync(file) && readFileSync(file, 'utf8') === wanted) return;
  for (const name of ['package.json', '.npmrc']) cpSync(join(scripts, name), join(folder, name));
  const options = ['install', '--no-package-lock', '--ignore-scripts'];
  const { status, stderr } = spawnSync('npm', options, { cwd: folder, encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
}

t.setTimeout(8 * RUN_MS);
install();

const CONTEXT = 65_536;
/** Longer than a refusal takes on a busy machine: one that comes later is a 200 with an error in it. */
const KEEP_ALIVE_MS = 5000;
const SHORT_CONTEXT = 2048;
/** Of a conversation that grows too long for it. */
const GROWN_CONTEXT = 32_768;
const { vocabulary, tokens } = await loadTokenFile(await embeddedTestModel());
const made = makePromptParts(vocabulary);
if (made.kind === 'bad') throw new Error(made.problem);
const { parts } = made;
const stubOf = async (context: number): Promise<ServerStub> => {
  const stub = await ServerStub.start(t, 'llama-server');
  stub.context = context;
  stub.hosts(parts);
  return stub;
};
const stub = await stubOf(CONTEXT);
const short = await stubOf(SHORT_CONTEXT);
const grown = await stubOf(GROWN_CONTEXT);
const sidecar = await InProcess.start(t, {
  // Each agent has the engine killed once.
  config: {
    contract: 'compatible',
    engine: { backoffMinMs: 100, backoffMaxMs: 100 },
    stream: { keepAliveMs: KEEP_ALIVE_MS },
  },
  models: [
    { id: 'model', kind: 'chat', seats: 4, contextPerSeat: CONTEXT, engine: { kind: 'llama-server', url: stub.url } },
    {
      id: 'short',
      kind: 'chat',
      seats: 4,
      contextPerSeat: SHORT_CONTEXT,
      engine: { kind: 'llama-server', url: short.url },
    },
    {
      id: 'grown',
      kind: 'chat',
      seats: 4,
      contextPerSeat: GROWN_CONTEXT,
      engine: { kind: 'llama-server', url: grown.url },
    },
  ],
});
const base = `http://127.0.0.1:${sidecar.app.publicPort}/v1`;
const KEY = 'agent-key';
sidecar.identity.answers.set(`Bearer ${KEY}`, { ...ACME, keyId: 'agent' });
const LIMITED = 'limited-key';
sidecar.identity.answers.set(`Bearer ${LIMITED}`, {
  ...ACME,
  keyId: 'limited',
  limits: { chat: { inFlight: 1, perMinute: 1000 } },
});

/** The model's next replies to requests that offer tools, behind a thought where the prompt begins one; to all others it says `Done.` */
function script(...replies: readonly string[]): void {
  const left = [...replies];
  stub.reply = () => {
    const prompt = textOf(stub.bodies.at(-1)?.['prompt']);
    // Requests for the title of a session offer none, and come at any time.
    const reply = (offersTools(prompt) ? left.shift() : undefined) ?? 'Done.';
    return [...vocabulary.tokenize(prompt.trimEnd().endsWith('<think>') ? `Hm.\n</think>\n\n${reply}` : reply, true)];
  };
}

const offersTools = (prompt: string): boolean => prompt.includes('<tools>');

const call = (name: string, given: object): string =>
  `<tool_call>\n{"name": "${name}", "arguments": ${JSON.stringify(given)}}\n</tool_call>`;

interface Ended {
  readonly code: number | null;
  readonly out: string;
}

/** An agent's process, given this input, and its end. */
function begin(
  name: string,
  command: readonly string[],
  environment: Readonly<Record<string, string>>,
  input = '',
): {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
} {
  const home = join(folder, 'homes', name);
  mkdirSync(join(home, 'work'), { recursive: true });
  const [file = '', ...options] = command;
  const child = spawn(file, options, {
    cwd: join(home, 'work'),
    env: { PATH: env['PATH'], HOME: home, XDG_CONFIG_HOME: home, XDG_DATA_HOME: home, ...environment },
    // opencode does not end with a pipe for its input.
    stdio: [input === '' ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    timeout: RUN_MS,
    killSignal: 'SIGKILL',
  });
  child.stdin?.end(input);
  let out = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text: Buffer) => (out += text.toString()));
  return { child, ended: once(child, 'close').then(([code]) => ({ code: code as number | null, out })) };
}

/** An agent that was refused so often for a full context does not end by itself. */
const MOST_REFUSED = 8;

/** 14,000 tokens: with the agent's own 14,000 they leave less than its longest reply, and fit. */
const LONG_TEXT = 'remember this. '.repeat(2300);

const requests = (status: number): number =>
  sidecar.lines.filter(({ event, status: of }) => event === 'request' && of === status).length;
const count = (event: string): number => sidecar.lines.filter((line) => line.event === event).length;

/** The process behind which the stub is. */
const enginePid = (): number =>
  Number(sidecar.lines.findLast(({ event, model }) => event === 'engine forked' && model === 'model')?.['pid']);

const FIRST_TOKENS = 'gen_ai_server_time_to_first_token_seconds';

/** Replies of which a token has come. */
async function begunReplies(): Promise<number> {
  const page = await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/metrics?name[]=${FIRST_TOKENS}`);
  const counts = [...(await page.text()).matchAll(new RegExp(`^${FIRST_TOKENS}_count\\{.*\\} (\\d+)$`, 'gm'))];
  return counts.reduce((sum, [, replies]) => sum + Number(replies), 0);
}

/** How an agent is run: a first turn, and a later one of the same session. */
interface Agent {
  readonly first: (text: string, model?: string) => readonly string[];
  readonly again: (text: string, model?: string) => readonly string[];
  /** Its tool that runs a command. */
  readonly runs: string;
  /** The variable that has its key, and others. */
  readonly key: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** A turn whose user shows an image that the model does not see. Absent: none by its command line. */
  readonly shows?: (image: string) => { readonly command: readonly string[]; readonly input: string };
  /** Where its own instructions alone are too long, it compacts the conversation and asks again without an end. */
  readonly compactsForever?: boolean;
  /** It takes the context of each model from the list of models. */
  readonly readsList?: boolean;
}

const PROVIDER = `model_providers.ra={name="ra",base_url="${base}",env_key="OPENAI_API_KEY",wire_api="responses"}`;

function codex(): Agent {
  const options = (model: string): string[] => [
    ...['-m', model, '-c', PROVIDER, '-c', 'model_provider=ra', '-c', `model_context_window=${CONTEXT}`],
    ...['-c', 'sandbox_mode="danger-full-access"', '--skip-git-repo-check'],
  ];
  const file = join(folder, 'node_modules/.bin/codex');
  return {
    first: (text, model = 'model') => [file, 'exec', ...options(model), text],
    again: (text) => [file, 'exec', 'resume', '--last', ...options('model'), text],
    runs: call('exec_command', { cmd: 'echo it-$((20+2))' }),
    key: 'OPENAI_API_KEY',
  };
}

/** With the plugin of docs/clients.md, since opencode itself asks for no list of models. */
function opencode(): Agent {
  const home = join(folder, 'homes/opencode/work');
  mkdirSync(home, { recursive: true });
  const plugin = /```js\n([^]*?)```/.exec(readFileSync(join(sourceRoot, 'docs/clients.md'), 'utf8'))?.[1] ?? '';
  writeFileSync(join(home, 'ra.js'), plugin);
  const options = { baseURL: base, apiKey: '{env:OPENAI_API_KEY}' };
  const settings = { plugin: ['./ra.js'], provider: { ra: { npm: '@ai-sdk/openai-compatible', options } } };
  writeFileSync(join(home, 'opencode.json'), JSON.stringify(settings));
  const file = join(folder, 'node_modules/opencode-linux-x64/bin/opencode');
  return {
    first: (text, model = 'model') => [file, 'run', '-m', `ra/${model}`, text],
    again: (text, model = 'model') => [file, 'run', '--continue', '-m', `ra/${model}`, text],
    runs: call('bash', { command: 'echo it-$((20+2))', description: 'says it' }),
    key: 'OPENAI_API_KEY',
    compactsForever: true,
    readsList: true,
  };
}

function claudeCode(): Agent {
  // The package's own command is made by its install script.
  const file = join(folder, 'node_modules/@anthropic-ai/claude-code-linux-x64/claude');
  const options = (model: string): string[] => ['--model', model, '--allowedTools', 'Bash(echo:*)'];
  return {
    first: (text, model = 'model') => [file, '-p', text, ...options(model)],
    again: (text) => [file, '-p', text, '--continue', ...options('model')],
    runs: call('Bash', { command: 'echo it-$((20+2))', description: 'says it' }),
    shows: (data) => {
      const json = ['--input-format', 'stream-json', '--output-format', 'stream-json', '--verbose'];
      const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data } };
      const message = { role: 'user', content: [image, { type: 'text', text: 'What is it?' }] };
      const input = `${JSON.stringify({ type: 'user', message, parent_tool_use_id: null, session_id: '' })}\n`;
      return { command: [file, '-p', ...options('model'), ...json], input };
    },
    key: 'ANTHROPIC_AUTH_TOKEN',
    environment: {
      ANTHROPIC_BASE_URL: base.replace(/\/v1$/, ''),
      ANTHROPIC_DEFAULT_HAIKU_MODEL: 'model',
      CLAUDE_CODE_MAX_CONTEXT_TOKENS: `${CONTEXT}`,
      CLAUDE_CODE_MAX_OUTPUT_TOKENS: '4096',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    },
  };
}

const AGENTS: Readonly<Record<string, () => Agent>> = { codex, opencode, 'claude-code': claudeCode };
const asked = argv.slice(2);

for (const [name, make] of Object.entries(AGENTS)) {
  if (asked.length > 0 && !asked.includes(name)) continue;
  t.test(name, async (t) => {
    const agent = make();
    const from = sidecar.lines.length;
    const start = (command: readonly string[], key = KEY): ReturnType<typeof begin> =>
      begin(name, command, { [agent.key]: key, ...agent.environment });
    const run = (command: readonly string[]): Promise<Ended> => start(command).ended;
    const prompts = (): string => stub.bodies.map(({ prompt }) => textOf(prompt)).join('\n\n');

    await t.test('two turns with a call', async (t) => {
      script(agent.runs, 'The first answer.');
      const first = await run(agent.first('Say it.'));
      t.equal(first.code, 0, first.out.slice(-2000));
      t.match(first.out, 'The first answer.');
      t.match(prompts(), 'it-22', 'the result of the call came back');
      script('The second answer.');
      const again = await run(agent.again('And again.'));
      t.match(again.out, 'The second answer.', again.out.slice(-2000));
      t.match(prompts(), /The first answer\.[^]*And again\./, 'with the first turn');
    });

    await t.test('an interruption', async (t) => {
      stub.misbehaviour = { hangsAfter: 2 };
      const left = requests(499);
      const { child, ended } = start(agent.first('Say it.'));
      await until(() => stub.running > 0);
      child.kill('SIGINT');
      child.kill('SIGTERM');
      await ended;
      // opencode has a second request running, for a title.
      await until(() => requests(499) > left && stub.running === 0);
      stub.misbehaviour = {};
      script('The third answer.');
      t.match((await run(agent.again('Go on.'))).out, 'The third answer.');
    });

    await t.test('429 with Retry-After', async (t) => {
      stub.misbehaviour = { hangsAfter: 2 };
      const held = await sidecar.begin(
        '/v1/chat/completions',
        { model: 'model', stream: true, messages: [{ role: 'user', content: 'Hold.' }] },
        { Authorization: `Bearer ${LIMITED}` },
      );
      await until(() => stub.running > 0);
      stub.misbehaviour = {};
      script('The answer after a wait.');
      const refused = requests(429);
      const { ended } = start(agent.first('Say it.'), LIMITED);
      await until(() => requests(429) > refused);
      stub.resume();
      const { out } = await ended;
      held.close();
      t.match(out, 'The answer after a wait.', out.slice(-2000));
    });

    await t.test('a context that is full', async (t) => {
      const before = requests(400);
      const refused = (): number => requests(400) - before;
      const { child, ended } = start(agent.first('Say it.', 'short'));
      let isOver = false;
      void ended.then(() => (isOver = true));
      await until(() => isOver || refused() === MOST_REFUSED);
      t.equal(isOver, agent.compactsForever !== true, 'it does not try forever');
      child.kill('SIGKILL');
      const { out } = await ended;
      t.ok(refused() > 0);
      t.match(out, /context|prompt is too long/i, out.slice(-2000));
    });

    const { shows } = agent;
    if (shows) {
      await t.test('an image that the model does not see', async (t) => {
        script('The answer without it.');
        const before = requests(400);
        const { command, input } = shows(png(8, 8).toString('base64'));
        const { out } = await begin(name, command, { [agent.key]: KEY, ...agent.environment }, input).ended;
        t.equal(requests(400), before + 1);
        t.match(out, 'The answer without it.', out.slice(-2000));
      });
    }

    /** A turn whose reply hangs behind its first tokens, once they have come. */
    const startHanging = async (): Promise<ReturnType<typeof begin>> => {
      stub.misbehaviour = { hangsAfter: 3 };
      const [begun, from] = [await begunReplies(), stub.bodies.length];
      const started = start(agent.first('Say it.'));
      // Those of all requests that run, the turn's own among them.
      await until(
        async () =>
          stub.bodies.slice(from).some(({ prompt }) => offersTools(textOf(prompt))) &&
          (await begunReplies()) - begun >= stub.bodies.length - from,
      );
      return started;
    };

    await t.test('a reply that is kept alive', async (t) => {
      script('The answer after a pause.');
      const { ended } = await startHanging();
      // It began later: once it was kept alive, so was the agent's.
      const beside = await sidecar.begin('/v1/responses', { model: 'model', input: 'Wait.', stream: true });
      await beside.until('event: keepalive\n');
      stub.misbehaviour = {};
      stub.resume();
      const { out } = await ended;
      beside.close();
      t.match(out, 'The answer after a pause.', out.slice(-2000));
    });

    await t.test('an engine that is killed in the middle of a reply', async (t) => {
      const lost = count('engine lost');
      const { ended } = await startHanging();
      stub.misbehaviour = {};
      script('The answer of the next try.');
      process.kill(enginePid(), 'SIGKILL');
      const { out } = await ended;
      t.equal(count('engine lost'), lost + 1);
      t.match(out, 'The answer of the next try.', out.slice(-2000));
    });

    const own = sidecar.lines.slice(from);
    const askedForList = own.some(({ event, route }) => event === 'request' && route === 'models');
    t.equal(askedForList, agent.readsList === true, 'the others have to be told their context');
    if (agent.readsList !== true) return;

    await t.test('a conversation that grows is compacted before it is too long', async (t) => {
      const before = requests(400);
      grown.reply = () => [...vocabulary.tokenize('The answer of a long session.', true)];
      const told = await run(agent.first(`Remember ${LONG_TEXT}`, 'grown'));
      t.equal(told.code, 0, told.out.slice(-2000));
      t.match((await run(agent.again('Go on.', 'grown'))).out, 'The answer of a long session.');
      const turns = grown.bodies.map(({ prompt }) => textOf(prompt)).filter(offersTools);
      t.ok(turns[0]?.includes(LONG_TEXT));
      t.notOk(turns.at(-1)?.includes(LONG_TEXT), 'a summary is in its place');
      t.equal(requests(400), before, 'nothing was refused');
    });
  });
}

/** The text of a prompt that the stub got in tokens. */
function textOf(prompt: unknown): string {
  if (!Array.isArray(prompt)) return '';
  return Buffer.concat((prompt as readonly number[]).map((token) => tokens.bytes(token))).toString();
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + RUN_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error('it did not come to pass');
    await new Promise((look) => setTimeout(look, 50));
  }
}
