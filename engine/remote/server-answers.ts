import type { Opened, Scores } from './adapter.js';
import type { ServerAnswer } from './server-client.js';

/** What an answer that should be JSON means for the question that was asked. */
export async function jsonAnswer(
  answer: Promise<ServerAnswer>,
): Promise<Extract<ServerAnswer, { kind: 'json' }> | Exclude<Scores, { kind: 'scores' }>> {
  const got = await answer;
  switch (got.kind) {
    case 'json':
      return got;
    case 'status':
      return isBusy(got.status) ? { kind: 'busy' } : { kind: 'failed', why: `the server answered ${got.status}` };
    case 'text':
      return { kind: 'failed', why: 'no JSON' };
    case 'absent':
    case 'failed':
      return { kind: 'broken' };
  }
}

/** It refuses because of its load, or while it loads. */
export function isBusy(status: number): boolean {
  return status === 429 || status === 503;
}

/** Codes of connections that cannot be made secure, whenever they are tried. */
const INSECURE = /CERT|SIGNATURE|^EPROTO$|^ERR_SSL/;

/** What the answer to a server's health check means at the start; undefined: it is up. */
export function notYet(health: ServerAnswer): Exclude<Opened, { kind: 'open' }> | undefined {
  if (health.kind === 'absent') return { kind: 'not-yet', why: 'absent' };
  if (health.kind === 'failed' && INSECURE.test(health.why)) {
    return { kind: 'unfit', why: `the TLS handshake with it fails (${health.why})` };
  }
  if (health.kind === 'failed') return { kind: 'not-yet', why: 'slow' };
  if (health.kind !== 'status') return undefined;
  if (health.status === 503) return { kind: 'not-yet', why: 'loading' };
  const key = health.status === 401 || health.status === 403 ? ': engine.secretFile has no key that it accepts' : '';
  return { kind: 'unfit', why: `its health check is answered with ${health.status}${key}` };
}
