/** Zero retention with gateways and authorizers: no secret, key or content of theirs leaves the sidecar. */
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { hashKey } from '../../sidecar/access/key-file.js';
import { canary, chatBody, decisionBody, MARK, systemOneBody } from '../support/canaries.js';
import { counted } from '../support/counted.js';
import { LeakSearch } from '../support/leak-search.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { shortDir } from '../support/short-dir.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const CHATS = '/chat/completions';
/** In another form than this sidecar’s keys, which the log would redact. */
const secretOf = (name: string): string => createHash('sha256').update(`a secret: ${name}`).digest('base64url');
const GATEWAY = { old: secretOf('gateway, old'), next: secretOf('gateway, next') };
const AUTHORIZER = secretOf('authorizer');
const GOOD = secretOf('a good key');

/** The authorizer’s denial for each key. */
const DENIALS = [
  ['invalid_api_key', 401],
  ['expired_api_key', 401],
  ['revoked_api_key', 401],
  ['insufficient_credit', 402],
  ['model_not_entitled', 403],
  ['not_in_cohort', 403],
  ['account_frozen', 403],
  ['unattributed_key', 403],
  ['user_rate_limited', 429],
  ['quota_exceeded', 429],
] as const;
const keyFor = (code: string): string => secretOf(code);
/** The authorizer fails on it. */
const BREAKING = secretOf('a breaking key');

t.test('callers named by a gateway or an authorizer', async (t) => {
  const dir = shortDir(t);
  const dataDir = t.testdir();
  const socket = join(dir, 'auth.sock');
  const gatewayFile = join(dir, 'gateway');
  const authorizerFile = join(dir, 'authorizer');
  writeFileSync(gatewayFile, `${GATEWAY.old}\n`);
  writeFileSync(authorizerFile, AUTHORIZER);
  const authorizer = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const { key } = JSON.parse(Buffer.concat(parts).toString()) as { key: string };
      const denied = DENIALS.find(([code]) => key === keyFor(code));
      const caller = { account: 'initech', keyId: 'key_i', models: 'all' };
      if (key === BREAKING) response.writeHead(500, { 'x-why': AUTHORIZER }).end(`{"${AUTHORIZER}":"${key}"}`);
      else response.end(JSON.stringify(denied ? { denied: { code: denied[0] } } : { caller }));
    });
  }).listen(socket);
  await once(authorizer, 'listening');
  t.teardown(() => authorizer.close());
  t.teardown(() => authorizer.closeAllConnections());

  const watch = new RetentionWatch();
  const sidecar = await Sidecar.start(t, {
    seats: 1,
    config: {
      dataDir,
      environment: 'staging',
      access: { mode: 'authorizer' },
      gateway: { secretFile: gatewayFile },
      authorizer: {
        url: 'http://authorizer/check',
        socket,
        secretFile: authorizerFile,
        send: 'key',
        timeoutMs: 60_000,
        breaker: { failures: 1, openMs: 1 },
      },
      engine: { hangMs: 3_600_000 },
      log: { level: 'trace' },
    },
  });
  const post = (path: string, body: object, key: string, headers = {}): Promise<Response> =>
    sidecar.post(path, body, { key, headers });
  const named = { 'x-ra-account': 'globex', 'x-ra-key-id': 'key_g', 'x-ra-environment': 'staging' };
  const behind = (body: object, headers = {}, secret = GATEWAY.old): Promise<Response> =>
    post(CHATS, body, secret, { ...named, ...headers });
  const signalEngine = (signal: NodeJS.Signals): void => void process.kill(sidecar.enginePid(CHAT), signal);

  await t.test('an authorizer accepts, denies and fails', async (t) => {
    t.match(await watch.replied(await post(CHATS, chatBody(), GOOD)), '"choices"');
    t.match(await watch.replied(await post('/decisions', decisionBody(), GOOD)), '"answers"');
    for (const [code, status] of DENIALS) {
      t.same(await watch.refused(await post(CHATS, chatBody(), keyFor(code))), { status, code });
    }
    const broken = await watch.refused(await post(CHATS, chatBody(), BREAKING));
    t.same(broken, { status: 503, code: 'gateway_unavailable' });
    await sidecar.logged('authorizer is left alone');
  });

  await t.test('a gateway names callers, and names them wrongly', async (t) => {
    t.match(await watch.replied(await behind(chatBody({ stream: true }))), '[DONE]');
    for (const [headers, status] of [
      [{ 'x-ra-account': `${canary()} ${canary()}` }, 403],
      [{ 'x-ra-key-id': `"${canary()}"` }, 403],
      [{ 'x-ra-environment': canary() }, 403],
      [{ 'x-ra-models': canary() }, 403],
      [{ 'x-ra-deadline-ms': '0' }, 504],
      [{ 'content-type': `text/${canary()}` }, 415],
      [{ 'idempotency-key': `${canary()} ${canary()}` }, 400],
    ] as const) {
      t.equal((await watch.refused(await behind(chatBody(), headers))).status, status, JSON.stringify(headers));
    }
    await watch.replied(await behind(chatBody(), { 'x-request-id': `not well-formed: ${canary()}` }));
  });

  await t.test('504: a deadline passes, while waiting and while running', async (t) => {
    signalEngine('SIGSTOP');
    const running = behind(chatBody(), { 'x-ra-deadline-ms': '2500' });
    await counted(sidecar, 'seats_busy', 1);
    // Long enough that the queue admits the request: without a chance of a seat it is refused at once.
    const waiting = await watch.refused(await behind(chatBody(), { 'x-ra-deadline-ms': '2000' }));
    t.same(waiting, { status: 504, code: 'timeout' });
    await watch.pages(sidecar);
    t.same(await watch.refused(await running), { status: 504, code: 'timeout' });
    signalEngine('SIGCONT');
    t.match(await watch.replied(await post('/systemone', systemOneBody(), GOOD)), '"answers"');
  });

  await t.test('secrets change, and their file becomes invalid', async (t) => {
    const put = async (text: string, event: string): Promise<void> => {
      writeFileSync(`${gatewayFile}.next`, text);
      renameSync(`${gatewayFile}.next`, gatewayFile);
      sidecar.child.kill('SIGHUP');
      await sidecar.logged(event);
    };
    await put(`${GATEWAY.next}\n`, 'secrets read anew');
    t.equal((await watch.refused(await behind(chatBody({ temperature: canary() }), {}, GATEWAY.next))).status, 400);
    // No longer a gateway’s secret: an ordinary key, which the authorizer accepts.
    await watch.replied(await behind(chatBody(), {}, GATEWAY.old));
    await put(`${GATEWAY.next} ${MARK}\n`, 'secrets cannot be read, the previous ones stay in force');
    await watch.replied(await behind(chatBody(), {}, GATEWAY.next));
  });

  watch.processes(sidecar.pid);
  await watch.pages(sidecar);
  sidecar.child.kill('SIGTERM');
  t.same(await sidecar.exited(), { code: 0, signal: null });
  watch.output(sidecar);
  await watch.files(dataDir);
  t.same(watch.places, ['stdout', 'stderr', 'pages', 'errors', 'heads', 'files', 'processes']);
  const keys = [GOOD, BREAKING, ...DENIALS.map(([code]) => keyFor(code))];
  const secrets = [MARK, AUTHORIZER, ...Object.values(GATEWAY), ...keys.flatMap((key) => [key, hashKey(key)])];
  t.same(watch.leaks(new LeakSearch(secrets, watch.phrases)), []);
});
