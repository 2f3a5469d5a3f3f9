/**
 * Bodies whose values would need many times the memory of their text, as raw HTTP: refused before the values are
 * created.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { cases } from '../support/long-form.js';
import { childrenOf, usedCpuMs } from '../support/processes.js';

const PATH = '/v1/chat/completions';
const MIB = 1024 * 1024;
/** Memory of the long prompt host beside the bodies: 83 MB as bytes and as text, and a quarter of a million values. */
const MOST_MIB = 700;

/** A chat with a tool whose parameters have `properties`, JSON text. */
function withTool(properties: string): string {
  const tool = `{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":${properties}}}}`;
  return `{"model":"chat","messages":[{"role":"user","content":"x"}],"tools":[${tool}]}`;
}

function withArguments(text: string): string {
  const call = { id: 'c', type: 'function', function: { name: 'f', arguments: text } };
  const messages = [
    { role: 'user', content: 'x' },
    { role: 'assistant', tool_calls: [call] },
    { role: 'tool', tool_call_id: 'c', content: 'x' },
  ];
  return JSON.stringify({ ...chatBody('chat', 'echo'), messages });
}

const properties = (count: number): string =>
  `{${Array.from({ length: count }, (_, i) => `"property_${i}":{"const":0}`).join(',')}}`;

const VALUES = { status: 400, code: 'bad_request', message: 'the body must not hold more than 262144 values' };
const UNSERVABLE = { status: 422, code: 'unprocessable', message: /^The schema of the tools has too many values/ };
const ARGUMENTS = {
  status: 422,
  code: 'unprocessable',
  message: /^The arguments of tool calls must be JSON, nested at most 64 levels/,
};

const BODIES: readonly (readonly [what: string, body: () => string, expected: typeof VALUES | typeof UNSERVABLE])[] = [
  ['600,000 properties', () => withTool(properties(600_000)), VALUES],
  ['as many properties as values are allowed', () => withTool(properties(130_000)), UNSERVABLE],
  ['16 MB of nested arguments', () => withArguments('['.repeat(8 * MIB) + ']'.repeat(8 * MIB)), ARGUMENTS],
  ['83 MB of empty objects', () => `{"model":"chat","messages":[${'{},'.repeat(27_600_000)}{}]}`, VALUES],
  ['an enum of three million', () => withTool(`{"p":{"enum":[${'0,'.repeat(3_000_000)}0]}}`), VALUES],
  ['an enum of a quarter of a million', () => withTool(`{"p":{"enum":[${'0,'.repeat(250_000)}0]}}`), UNSERVABLE],
];

/** The most memory that a process had, in MiB. */
function peakMiB(pid: number): number {
  return Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}

/** The process of the long prompt host. */
function longHost(): number {
  const found = childrenOf(process.pid).find(({ command }) => command.includes('prompts/host.js long'));
  if (!found) throw new Error('there is no long prompt host');
  return found.pid;
}

t.test('bodies with too many values are refused at the cost of reading their bytes', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'chat', kind: 'chat' }] });
  // The first long body starts the host.
  t.equal((await sidecar.ask('POST', PATH, JSON_HEADERS, ' '.repeat(32 * 1024))).status, 400);
  const host = longHost();
  // Of each way to be refused the largest: too many values, a schema of too many, arguments that are nested too deep.
  for (const [what, body, expected] of cases(BODIES, (_, index) => index === 1 || index === 2 || index === 3)) {
    const sent = body();
    const usedBefore = usedCpuMs(host);
    const response = await sidecar.ask('POST', PATH, JSON_HEADERS, sent);
    t.comment(`${what}: ${usedCpuMs(host) - usedBefore} ms of the host's time, ${Math.round(peakMiB(host))} MiB`);
    t.equal(response.status, expected.status, what);
    t.match(JSON.parse(response.body), { error: { code: expected.code, message: expected.message } }, what);
  }
  t.equal(longHost(), host, 'it is the same process');
  t.ok(peakMiB(host) < MOST_MIB, `${Math.round(peakMiB(host))} MiB`);
});
