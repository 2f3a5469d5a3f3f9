/** One request of a caller with limited patience, and how it ended. */
import { request, type Agent } from 'node:http';
import { MAX_REFUSAL, refusalOf, type Refusal } from './refusal.js';

/** The server, and fields of a body that only this server has. */
export interface Target {
  readonly port: number;
  /** Bearer keys by account. */
  readonly keys: Readonly<Record<string, string>>;
  readonly extras?: Readonly<Record<string, unknown>>;
}

export interface Attempt {
  readonly account: string;
  /** When it was due, ms from the start of the load. All times count from there, also if the sender was late. */
  readonly scheduledMs: number;
  /** `good`: complete within the caller’s patience. `refused`: an answer of 4xx or 5xx. `gone`: the caller gave up. */
  readonly end: 'good' | 'refused' | 'gone' | 'broken';
  readonly status: number;
  /** To the last byte, or to when the caller gave up. */
  readonly totalMs: number;
  /** Of those that were refused. */
  readonly refusal?: Refusal;
}

export interface Sending {
  readonly agent: Agent;
  readonly account: string;
  readonly scheduledMs: number;
  /** performance.now() at the start of the load. */
  readonly startedAt: number;
  readonly patienceMs: number;
  readonly body: object;
}

/** Asks for one whole completion. Never rejects. */
export function attempt(target: Target, sending: Sending): Promise<Attempt> {
  const { agent, account, scheduledMs, startedAt, patienceMs, body } = sending;
  const due = startedAt + scheduledMs;
  const since = (): number => performance.now() - due;
  return new Promise((resolve) => {
    let status = 0;
    const end = (how: Attempt['end'], refusal?: Refusal): void => {
      clearTimeout(patience);
      resolve({ account, scheduledMs, end: how, status, totalMs: since(), ...(refusal && { refusal }) });
      sent.destroy();
    };
    const patience = setTimeout(() => end('gone'), Math.max(0, patienceMs - since()));
    const key = target.keys[account];
    const sent = request({
      agent,
      port: target.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/v1/chat/completions',
      headers: {
        'content-type': 'application/json',
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
      },
    });
    sent.on('error', () => end('broken'));
    sent.on('response', (response) => {
      status = response.statusCode ?? 0;
      let refusal = '';
      response.setEncoding('utf8').on('error', () => end('broken'));
      response.on('data', (chunk: string) => {
        if (status !== 200 && refusal.length < MAX_REFUSAL) refusal += chunk;
      });
      response.on('end', () => {
        if (status === 200) end('good');
        else end('refused', refusalOf(response.headers, refusal));
      });
    });
    sent.end(JSON.stringify({ ...body, ...target.extras, stream: false }));
  });
}
