import type { Test } from 'tap';
import { RawConnection, type RawResponse } from './raw-http.js';
import { CHAT, type Sidecar } from './sidecar.js';

/**
 * A request whose reply continues until `max_tokens` or the context ends it: a reward for repetition makes greedy
 * decoding repeat one text forever, so that no end token is sampled.
 */
export const ENDLESS = {
  model: CHAT,
  messages: [{ role: 'user', content: 'Hello' }],
  temperature: 0,
  frequency_penalty: -2,
} as const;

/** The same, ended after four tokens. */
export const SHORT = { ...ENDLESS, max_tokens: 4 } as const;

/** A running chat stream, on its own connection that records every byte. */
export class OpenStream {
  readonly connection: RawConnection;
  /** The whole response once it is there; rejects if the connection ends before. */
  readonly response: Promise<RawResponse>;

  private constructor(connection: RawConnection) {
    this.connection = connection;
    this.response = connection.response();
    // Avoids an unhandled rejection if the response is not awaited.
    this.response.catch(() => undefined);
  }

  /** Requests a stream and resolves once `sign` is among its bytes: by default the first token. Rejects if it is refused. */
  static async begin(
    sidecar: Pick<Sidecar, 'port' | 'key'>,
    body: Readonly<Record<string, unknown>> = ENDLESS,
    sign = '"delta"',
  ): Promise<OpenStream> {
    const connection = await RawConnection.open(sidecar.port);
    connection.request(
      'POST',
      '/v1/chat/completions',
      { Authorization: `Bearer ${sidecar.key}`, 'Content-Type': 'application/json', TE: 'trailers' },
      JSON.stringify({ ...body, stream: true }),
    );
    try {
      await connection.until(sign);
    } catch (error) {
      connection.close();
      throw error;
    }
    return new OpenStream(connection);
  }

  /** The caller disconnects. */
  leave(): void {
    this.connection.close();
  }
}

interface Frame {
  readonly choices?: readonly { readonly finish_reason: string | null }[];
  readonly error?: { readonly code: string; readonly type: string };
}

/** The data of a stream’s frames, in order; comments are left out. */
export function frames({ body }: RawResponse): string[] {
  return [...body.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => data);
}

/** Asserts that a stream that had begun was ended early as docs/contract.md#stream-frames requires. */
export function endsEarly(t: Test, response: RawResponse, error: { code: string; type: string }): void {
  const data = frames(response);
  t.notOk(data.includes('[DONE]'), 'no [DONE]');
  const parsed = data.map((text) => JSON.parse(text) as Frame);
  t.equal(parsed.filter((frame) => frame.error).length, 1, 'exactly one error frame');
  t.match(parsed.at(-1), { error }, 'it is the last');
  const reasons = parsed.flatMap(({ choices = [] }) => choices.map((choice) => choice.finish_reason));
  t.ok(reasons.length > 0, 'tokens came before it');
  t.ok(
    reasons.every((reason) => reason === null),
    'no invented finish_reason',
  );
  hasTrailer(t, response);
}

/** Asserts that a stream ended properly: a finish_reason, `[DONE]`, the trailer, no error. */
export function endsWell(t: Test, response: RawResponse): void {
  const data = frames(response);
  t.equal(data.at(-1), '[DONE]');
  t.notOk(response.body.includes('"error"'), 'no error');
  const last = JSON.parse(data.at(-2) ?? '{}') as Frame;
  t.ok(last.choices?.[0]?.finish_reason, 'a finish_reason');
  hasTrailer(t, response);
}

function hasTrailer(t: Test, { trailers }: RawResponse): void {
  const timing = trailers.find(([name]) => name.toLowerCase() === 'server-timing');
  t.match(timing?.[1], /^ra-ttft;dur=[0-9.]+$/, 'the trailer follows');
}
