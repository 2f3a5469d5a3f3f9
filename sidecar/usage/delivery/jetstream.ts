/** JetStream through NATS' own client. sinks.ts loads this file only where `delivery.nats.servers` is set. */
import { jetstream, JetStreamApiError, type PubAck } from '@nats-io/jetstream';
import {
  connect,
  credsAuthenticator,
  headers,
  InvalidArgumentError,
  nkeyAuthenticator,
  RequestError,
  tokenAuthenticator,
  usernamePasswordAuthenticator,
  type Authenticator,
} from '@nats-io/transport-node';
import { reasonOf } from './sink.js';
import type { JetStream, Published } from './nats-sink.js';

/** Sent to the server for its operator's logs. */
const CLIENT_NAME = 'ra-sidecar';

/** CloudEvents 1.0, NATS binding: an event is the whole payload (structured mode), in the JSON format. */
const EVENT_TYPE = 'application/cloudevents+json; charset=UTF-8';

/** JetStream's number for a message that exceeds the limit of the stream or the server. */
const TOO_LONG = 10_054;

/**
 * JetStream's numbers about a message itself: too long, headers too long. All others are about the stream, its limits, the account or the
 * cluster, and are retried.
 */
const THE_EVENTS: ReadonlySet<number> = new Set([TOO_LONG, 10_097]);

/** How the sidecar authenticates: with what its file contained when it was read. */
export type JetStreamLogin =
  | { readonly kind: 'none' }
  | { readonly kind: 'password'; readonly user: string; readonly password: string }
  | { readonly kind: 'token'; readonly token: string }
  | { readonly kind: 'nkey'; readonly seed: string }
  /** A creds file: a user's JWT and the seed of its nkey. */
  | { readonly kind: 'creds'; readonly creds: string };

export interface JetStreamOptions {
  readonly servers: readonly string[];
  readonly stream: string;
  readonly login: JetStreamLogin;
  /** PEM. Absent: TLS is used only if the server offers it. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  /** Time limit of each server's connection, and of each acknowledgement, ms. */
  readonly timeoutMs: number;
}

/** Connects to a server. The client does not reconnect; the sink connects again with its next batch. Rejects if no server was reached. */
export async function connectJetStream(options: JetStreamOptions): Promise<JetStream> {
  const { servers, stream, login, tls, timeoutMs } = options;
  const authenticator = authenticatorOf(login);
  const connection = await connect({
    servers: [...servers],
    name: CLIENT_NAME,
    timeout: timeoutMs,
    reconnect: false,
    // Usage is sent only to configured servers, not to others that a server advertises.
    ignoreClusterUpdates: true,
    // A stack trace for each message costs more than sending it.
    noAsyncTraces: true,
    ...(authenticator && { authenticator }),
    ...(tls && { tls }),
  });
  const client = jetstream(connection, { timeout: timeoutMs });
  return {
    gone: connection.closed(),
    async publish({ id, subject, body }) {
      const fields = headers();
      fields.set('Content-Type', EVENT_TYPE);
      const about = { msgID: id, expect: { streamName: stream }, timeout: timeoutMs, headers: fields };
      try {
        const ack = await client.publish(subject, body, about);
        if (isOfStream(ack, stream)) return { kind: 'stored' };
        return { kind: 'failed', why: 'no acknowledgement of the stream', broken: false };
      } catch (error) {
        return outcomeOf(error);
      }
    },
    // Pending acknowledgements are not awaited, since they are ignored after this.
    close: () => connection.close().catch(() => undefined),
  };
}

/** Whether an answer is the stream's acknowledgement: other subscribers may answer, and the client takes any JSON without `error`. */
function isOfStream(answer: PubAck, stream: string): boolean {
  return answer.stream === stream && Number.isSafeInteger(answer.seq) && answer.seq > 0;
}

function outcomeOf(error: unknown): Published {
  // Before it sends, the client checks only the message's length, against the server's limit.
  if (error instanceof InvalidArgumentError) return { kind: 'refused', status: TOO_LONG };
  const cause = error instanceof Error && !(error instanceof JetStreamApiError) ? error.cause : error;
  if (cause instanceof JetStreamApiError) {
    if (THE_EVENTS.has(cause.code)) return { kind: 'refused', status: cause.code };
    return { kind: 'failed', why: `JetStream ${cause.code}`, broken: false };
  }
  // No responders for the subject: there is no such stream, or it is recovering.
  if (cause instanceof RequestError && cause.isNoResponders())
    return { kind: 'failed', why: 'no stream', broken: false };
  return { kind: 'failed', why: reasonOf(error), broken: true };
}

function authenticatorOf(login: JetStreamLogin): Authenticator | undefined {
  switch (login.kind) {
    case 'none':
      return undefined;
    case 'password':
      return usernamePasswordAuthenticator(login.user, login.password);
    case 'token':
      return tokenAuthenticator(login.token);
    case 'nkey':
      return nkeyAuthenticator(new TextEncoder().encode(login.seed));
    case 'creds':
      return credsAuthenticator(new TextEncoder().encode(login.creds));
  }
}
