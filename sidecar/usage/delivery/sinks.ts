/** The configured sink, and the files with which it authenticates. */
import type { Clock } from '../../lib/clock.js';
import { FileProblem, readText } from '../../lib/checked-file.js';
import { readBearerToken } from '../../lib/secret-file.js';
import type { DeliveryConfig, NatsConfig } from '../../config/delivery-schema.js';
import { HttpSink } from './http-sink.js';
import type { JetStreamLogin } from './jetstream.js';
import { NatsSink, type JetStream } from './nats-sink.js';
import type { DeliverySink } from './sink.js';

/** A longer file was probably named by mistake. Certificate files include the chain. */
const MAX_FILE_BYTES = 1024 * 1024;

/** The files' names in messages. */
const NATS = 'delivery.nats';
const NATS_SECRET = `${NATS}.secretFile`;

/** A user's seed: `SU`, then 32 bytes and a checksum in base 32. */
const SEED = /^SU[A-Z2-7]{56}$/;
const TOKEN = /^[\x21-\x7e]+$/;
const CREDS = /BEGIN NATS USER JWT[^]+BEGIN USER NKEY SEED/;

/** The configured sink, if there is one; it connects when it sends its first batch. Rejects with a FileProblem if a file is invalid. */
export async function openSink(
  delivery: DeliveryConfig,
  { clock, date }: { readonly clock: Clock; readonly date: () => number },
): Promise<DeliverySink | undefined> {
  const { url, secretFile, nats, timeoutMs } = delivery;
  if (url !== undefined) {
    const secret = secretFile === undefined ? undefined : () => readBearerToken(secretFile);
    await secret?.();
    return new HttpSink({ clock, date, url, timeoutMs, ...(secret && { secret }) });
  }
  await checkSinkFiles(delivery);
  if (nats.servers.length === 0) return undefined;
  return new NatsSink({ ...nats, connect: () => connectNats(nats, timeoutMs) });
}

/**
 * Connects to the configured stream. Reads files anew, so that credentials can change at any time. Only here is NATS' client loaded.
 * Rejects with a FileProblem, or as `connectJetStream` does.
 */
export async function connectNats(nats: NatsConfig, timeoutMs: number): Promise<JetStream> {
  const login = await readNatsLogin(nats);
  const tls = nats.tls ? await readTls(nats) : undefined;
  const { connectJetStream } = await import('./jetstream.js');
  return await connectJetStream({ servers: nats.servers, stream: nats.stream, login, timeoutMs, ...(tls && { tls }) });
}

/** The files that the configured stream names. */
export function sinkFiles({ nats }: Pick<DeliveryConfig, 'nats'>): string[] {
  return [nats.secretFile, nats.caFile, nats.certFile, nats.keyFile].filter((file) => file !== undefined);
}

/** Reads them. Rejects with a FileProblem. */
export async function checkSinkFiles({ nats }: Pick<DeliveryConfig, 'nats'>): Promise<void> {
  await readNatsLogin(nats);
  await readTls(nats);
}

async function readNatsLogin({ auth, secretFile }: NatsConfig): Promise<JetStreamLogin> {
  if (auth === 'none' || secretFile === undefined) return { kind: 'none' };
  const text = (await readNamed(NATS_SECRET, secretFile)).trim();
  const demand = (holds: boolean, what: string): void => {
    if (!holds) throw new FileProblem(NATS_SECRET, `must contain ${what}`, secretFile);
  };
  switch (auth) {
    case 'password': {
      // The password may contain colons.
      const { user = '', password = '' } = /^(?<user>[^:\n]+):(?<password>[^\n]+)$/.exec(text)?.groups ?? {};
      demand(user !== '', 'one line, user:password');
      return { kind: auth, user, password };
    }
    case 'token':
      demand(TOKEN.test(text), 'one token and nothing else');
      return { kind: auth, token: text };
    case 'nkey':
      demand(SEED.test(text), 'the seed of a user’s nkey and nothing else');
      return { kind: auth, seed: text };
    case 'creds':
      demand(CREDS.test(text), 'a user’s JWT and seed, as NATS’ own tools write them');
      return { kind: auth, creds: `${text}\n` };
  }
}

async function readTls({
  caFile,
  certFile,
  keyFile,
}: NatsConfig): Promise<{ ca?: string; cert?: string; key?: string }> {
  const pem = async (name: string, file: string): Promise<string> => {
    const text = await readNamed(`${NATS}.${name}`, file);
    if (!text.includes('-----BEGIN ')) throw new FileProblem(`${NATS}.${name}`, 'must be PEM', file);
    return text;
  };
  return {
    ...(caFile !== undefined && { ca: await pem('caFile', caFile) }),
    ...(certFile !== undefined && { cert: await pem('certFile', certFile) }),
    ...(keyFile !== undefined && { key: await pem('keyFile', keyFile) }),
  };
}

/** The text of a file that must exist. Rejects with a {@link FileProblem}, which never quotes it. */
async function readNamed(what: string, file: string): Promise<string> {
  const text = await readText(what, file, MAX_FILE_BYTES);
  if (text === undefined) throw new FileProblem(what, 'does not exist', file);
  return text;
}
