/** Asks the sidecar of the command's configuration, over its operators' listener. */
import { request } from 'node:http';
import type { Config } from '../config/config.js';
import { FileProblem } from '../lib/checked-file.js';
import { jsonIn } from '../lib/json-in.js';
import { readFirstSecret } from '../lib/secret-file.js';

/** Longer than any answer, characters: a page of keys may have 50 of up to 32 Ki each, and their accounts. */
const MAX_ANSWER = 4 * 1024 * 1024;

/** Addresses on which one can listen but to which one cannot connect. */
const REACHABLE: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '127.0.0.1' };

export interface OperatorsRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** JSON. */
  readonly body?: string;
  /** The longest time without a byte of the answer, ms; absent: no limit. */
  readonly silenceMs?: number;
}

/** `T`: the fields of an answer; `error`: of one that is a refusal. */
export type Answer<T> = Partial<T> & { readonly error?: { readonly message?: string } };

export type Asked<T> =
  /** `at`: address and port. */
  | { readonly kind: 'answer'; readonly at: string; readonly body: Answer<T> }
  /** `why`: one line. */
  | { readonly kind: 'none'; readonly why: string };

/** The JSON answer, or why there is none. The first of the operators' keys is sent if there are some. */
export async function askSidecar<T>(
  { host, port, secretFile }: Config['operators'],
  { method, path, body, silenceMs }: OperatorsRequest,
): Promise<Asked<T>> {
  let key: string | undefined;
  try {
    if (secretFile !== undefined) key = await readFirstSecret(secretFile);
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return { kind: 'none', why: error.message };
  }
  const headers = {
    ...(body !== undefined && { 'content-type': 'application/json' }),
    ...(key !== undefined && { authorization: `Bearer ${key}` }),
  };
  const to = { host: REACHABLE[host] ?? host, port, path, method, headers };
  const at = `${to.host}:${port}`;
  return await new Promise((settle) => {
    const none = (why: string): void => settle({ kind: 'none', why });
    const asked = request(to, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        if (text.length > MAX_ANSWER) asked.destroy();
      });
      response.once('end', () => settle(parse(text, at)));
      // After an end it does nothing.
      response.once('close', () => none('the answer was cut off'));
    });
    asked.once('error', ({ code }: NodeJS.ErrnoException) => none(`no sidecar answers at ${at} (${code ?? 'closed'})`));
    if (silenceMs !== undefined) {
      asked.setTimeout(silenceMs, () => {
        none(`no sidecar answers at ${at} (silent for ${silenceMs} ms)`);
        asked.destroy();
      });
    }
    asked.end(body);
  });
}

function parse<T>(text: string, at: string): Asked<T> {
  const unknown = (problem: string): Asked<T> => ({
    kind: 'none',
    why: `the answer is ${problem}: is that the operators’ listener of a sidecar?`,
  });
  const body = jsonIn(text);
  if (body === undefined) return unknown('no JSON');
  return typeof body === 'object' && body !== null ? { kind: 'answer', at, body } : unknown('no object');
}
