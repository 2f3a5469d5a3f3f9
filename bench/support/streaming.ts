/** A caller who streams chat completions over HTTP and notes when each piece came. */
import { request, type Agent } from 'node:http';

/** Who is called: a server that speaks the chat completions of OpenAI's clients. */
export interface Target {
  readonly agent: Agent;
  readonly port: number;
  /** Sent as the bearer key, if there is one. */
  readonly key?: string;
  /** Fields of every body that this server needs and others do not know. */
  readonly extras?: Readonly<Record<string, unknown>>;
}

export interface Streamed {
  /** Pieces with text; a token that ends inside a character gives none. */
  readonly pieces: number;
  /** From the request's last byte written to the first piece, ms. */
  readonly ttftMs: number;
  /** Between one piece and the next, ms. */
  readonly gapsMs: readonly number[];
  /** As the server counts them. */
  readonly completionTokens: number;
}

/** Streams one completion to its end. Rejects on anything but a 200 that ends with [DONE]. */
export function stream({ agent, port, key, extras }: Target, body: object): Promise<Streamed> {
  return new Promise((resolve, reject) => {
    const headers = {
      'content-type': 'application/json',
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
    };
    const sent = request({ agent, port, host: '127.0.0.1', method: 'POST', path: '/v1/chat/completions', headers });
    const text = JSON.stringify({ ...body, ...extras, stream: true, stream_options: { include_usage: true } });
    const times: number[] = [];
    let rest = '';
    let completionTokens = 0;
    let done = false;
    let from = 0;
    sent.on('error', reject);
    sent.on('response', (response) => {
      response.setEncoding('utf8').on('error', reject);
      response.on('data', (chunk: string) => {
        const now = performance.now();
        const frames = (rest + chunk).split('\n\n');
        rest = frames.pop() ?? '';
        for (const frame of frames) {
          if (/"content":"(?!")/.test(frame)) times.push(now);
          else if (frame === 'data: [DONE]') done = true;
          const counted = /"completion_tokens":([0-9]+)/.exec(frame)?.[1];
          if (counted !== undefined) completionTokens = Number(counted);
        }
      });
      response.on('end', () => {
        if (response.statusCode !== 200 || !done) reject(new Error(`answered ${String(response.statusCode)}`));
        const gapsMs = times.slice(1).map((time, i) => time - (times[i] ?? time));
        resolve({ pieces: times.length, ttftMs: (times[0] ?? NaN) - from, gapsMs, completionTokens });
      });
    });
    sent.end(text, () => (from = performance.now()));
  });
}
