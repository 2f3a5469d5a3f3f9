/** One caller of the soak: reads its answer to the end, or disconnects in the middle of it. */
import { request, type Agent } from 'node:http';

/** The request, and the server. */
export interface Call {
  readonly agent: Agent;
  readonly port: number;
  readonly key: string;
  /** Sent as x-request-id, by which the usage record is found. */
  readonly id: string;
  readonly body: object;
  /** The body is padded at its end with blanks to so many bytes. */
  readonly bytes?: number;
  readonly stream: boolean;
  /** The caller disconnects after so long, ms. */
  readonly leavesAfterMs?: number;
}

/** As the server reported them to this caller. */
export interface ReportedUsage {
  readonly promptTokens: number;
  /** Of the prompt’s, those that were reused. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

export interface Answer {
  readonly id: string;
  /**
   * `whole`: the answer and its usage. `cut`: a stream that ended with its one error frame. `refused`: an error in place of
   * an answer. `left`: the caller did. `broken`: none of these, which no request may end as.
   */
  readonly end: 'whole' | 'cut' | 'refused' | 'left' | 'broken';
  /** Of the error, where there was one. */
  readonly code?: string;
  /** Of a whole one. */
  readonly reported?: ReportedUsage;
  readonly durationMs: number;
}

/** Sends it and reads. Never rejects. */
export function call({ agent, port, key, id, body, bytes = 0, stream, leavesAfterMs }: Call): Promise<Answer> {
  const from = performance.now();
  return new Promise((resolve) => {
    const end = (how: Ending): void => {
      clearTimeout(leaving);
      resolve({ id, durationMs: performance.now() - from, ...how });
    };
    const sent = request({
      agent,
      port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/v1/chat/completions',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}`, 'x-request-id': id },
    });
    const leaving =
      leavesAfterMs === undefined
        ? undefined
        : setTimeout(() => {
            end({ end: 'left' });
            sent.destroy();
          }, leavesAfterMs);
    // After a disconnect the request has ended already, and these change nothing.
    sent.on('error', () => end({ end: 'broken' }));
    sent.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('error', () => end({ end: 'broken' }));
      response.on('data', (chunk: string) => (text += chunk));
      response.on('end', () => end(endOf(response.statusCode ?? 0, text, stream)));
    });
    const text = JSON.stringify({ ...body, stream, ...(stream && { stream_options: { include_usage: true } }) });
    sent.end(text.padEnd(bytes));
  });
}

type Ending = Pick<Answer, 'end' | 'code' | 'reported'>;

/** How a complete answer ended. */
export function endOf(status: number, text: string, stream: boolean): Ending {
  const codes = [...text.matchAll(/"error":\{[^{}]*"code":"([a-z_]+)"/g)].map(([, code]) => code ?? '');
  const [code] = codes;
  if (status !== 200) return code === undefined ? { end: 'broken' } : { end: 'refused', code };
  const done = text.includes('data: [DONE]\n\n');
  if (stream && code !== undefined && codes.length === 1 && !done) return { end: 'cut', code };
  const counts = /"prompt_tokens":(\d+),"completion_tokens":(\d+)/.exec(text);
  if (codes.length > 0 || (stream && !done) || !counts) return { end: 'broken' };
  const cached = /"cached_tokens":(\d+)/.exec(text)?.[1] ?? '0';
  const [, prompt, completion] = counts.map(Number);
  const reported = { promptTokens: prompt ?? NaN, cachedTokens: Number(cached), completionTokens: completion ?? NaN };
  return { end: 'whole', reported };
}
