/**
 * TLS on the public listener with other programs: openssl s_client, curl, the `openai` client; and a renewal under
 * load.
 */
import { execFile, spawn } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { testPair } from '../support/certificates.js';
import { ENDLESS_CALL } from '../support/endless-call.js';
import { eventually, signalGroup } from '../support/processes.js';
import { runCli } from '../support/cli.js';
import { sourceRoot } from '../support/source-root.js';

const run = promisify(execFile);
const [a, b] = [testPair('a'), testPair('b')];

const dir = mkdtempSync(join(tmpdir(), 'ra-tls-'));
t.teardown(() => rmSync(dir, { recursive: true, force: true }));
const [keyFile, certFile, trusted] = [join(dir, 'key.pem'), join(dir, 'cert.pem'), join(dir, 'trusted.pem')];
copyFileSync(a.keyFile, keyFile);
copyFileSync(a.certFile, certFile);
writeFileSync(trusted, a.cert + b.cert);
/** Such a stream takes longer than a change of certificates. */
const STREAM_TOKENS = 1000;
const CALLERS = 4;
const environment = { RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0', RA_DATA_DIR: join(dir, 'data') };

t.test('a certificate that does not fit its key ends the start with one line', async (t) => {
  const { code, stderr } = await runCli(['serve'], {
    ...environment,
    RA_TLS_KEY_FILE: keyFile,
    RA_TLS_CERT_FILE: b.certFile,
  });
  t.not(code, 0);
  t.match(stderr.trim(), /^[^\n]*tls\.certFile: is not the certificate of the key in tls\.keyFile \(file [^\n]+\)$/);
});

t.test('served over TLS', async (t) => {
  const child = spawn(process.execPath, ['dist/sidecar/cli.js', 'serve'], {
    cwd: sourceRoot,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, ...environment, RA_TLS_KEY_FILE: keyFile, RA_TLS_CERT_FILE: certFile },
  });
  t.teardown(() => signalGroup(child.pid ?? 0, 'SIGKILL'));
  let printed = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (printed += text));
  await eventually('it is ready', () => /^curl .*"questions".*\n/m.test(printed));
  const [, port = ''] = /ready at https:\/\/127\.0\.0\.1:(\d+)/.exec(printed) ?? [];
  const [chat = '', decision = ''] = printed.split('\n').filter((line) => line.startsWith('curl '));
  const [key = ''] = /ra-dev-[\w-]+/.exec(printed) ?? [];

  const client = async (...options: readonly string[]): Promise<string> => {
    const asked = `openssl s_client -connect 127.0.0.1:${port} -CAfile ${trusted} ${options.join(' ')} </dev/null 2>&1`;
    return (await run('sh', ['-c', `${asked} || true`])).stdout;
  };
  for (const [option, name] of [
    ['-tls1_2', 'TLSv1.2'],
    ['-tls1_3', 'TLSv1.3'],
  ] as const) {
    const output = await client(option);
    t.match(output, new RegExp(`New, ${name}`));
    t.match(output, /Verify return code: 0 \(ok\)|Verification: OK/);
  }
  t.notMatch(await client('-tls1_1', '-cipher', 'DEFAULT@SECLEVEL=0'), /New, TLSv1\.[01],/);

  const curl = async (line: string): Promise<string> => (await run('sh', ['-c', `${line} --cacert ${trusted}`])).stdout;
  t.match(await curl(chat), /data: \[DONE\]/);
  t.match(await curl(decision), /"refund"/);

  const openai = `
    import OpenAI from 'openai';
    const client = new OpenAI({ baseURL: 'https://127.0.0.1:${port}/v1', apiKey: '${key}' });
    const asked = { model: 'ra-tiny-chat', max_tokens: 16, messages: [{ role: 'user', content: 'Hello' }] };
    const whole = await client.chat.completions.create(asked);
    let frames = 0;
    for await (const _ of await client.chat.completions.create({ ...asked, stream: true })) frames += 1;
    console.log(whole.choices[0].message.role, frames > 1);`;
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', openai], {
    cwd: sourceRoot,
    env: { ...process.env, NODE_EXTRA_CA_CERTS: trusted },
  });
  t.equal(stdout.trim(), 'assistant true');

  t.match(await client(), /a\.test/);
  // Callers that always have a stream open, while the pair is replaced.
  const body = JSON.stringify({ ...ENDLESS_CALL, stream: true, max_tokens: STREAM_TOKENS });
  const long = chat.replace(/-d '.*'/, `-d '${body}'`);
  t.not(long, chat);
  /** Of each stream its first byte and its end, ms. */
  const streams: { from: number; to: number }[] = [];
  let replaced = false;
  const caller = async (): Promise<void> => {
    while (!replaced) {
      const child = spawn('sh', ['-c', `exec ${long} --cacert ${trusted}`], { stdio: ['ignore', 'pipe', 'ignore'] });
      const stream = { from: Infinity, to: Infinity };
      streams.push(stream);
      let text = '';
      for await (const piece of child.stdout) {
        stream.from = Math.min(stream.from, performance.now());
        text += String(piece);
      }
      stream.to = performance.now();
      t.match(text, /"finish_reason":"length"/, 'a stream is complete');
      t.match(text, /data: \[DONE\]/);
    }
  };
  const callers = Array.from({ length: CALLERS }, caller);
  let lastOfA = 0;
  let firstOfB = Infinity;
  try {
    const running = (): number => streams.filter(({ from, to }) => from < Infinity && to === Infinity).length;
    await eventually('all callers have a stream', () => running() === CALLERS);
    copyFileSync(b.keyFile, keyFile);
    copyFileSync(b.certFile, certFile);
    await eventually('new connections get the new certificate', async () => {
      const asked = performance.now();
      const isB = /b\.test/.test(await client());
      if (isB) firstOfB = performance.now();
      else lastOfA = asked;
      return isB;
    });
  } finally {
    replaced = true;
    await Promise.all(callers);
  }
  const open = streams.filter(({ from, to }) => from < lastOfA && to > firstOfB);
  t.ok(open.length > 0, `${open.length} of ${streams.length} streams were open before and after the change`);
  t.match(await curl(chat), /data: \[DONE\]/);
});
