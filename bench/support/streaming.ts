/** A caller that streams chat completions over HTTP and records when text arrived. */
import { request, type Agent } from 'node:http';

/** The server: one that speaks the chat completions of OpenAI’s clients. */
export interface Target {
  readonly agent: Agent;
  readonly port: number;
  /** Sent as the bearer key, if there is one. */
  readonly key?: string;
  /** Fields of every body that only this server has. */
  readonly extras?: Readonly<Record<string, unknown>>;
}

export interface Streamed {
  /** Events with text; a token that ends inside a character has none, and quick ones may share one. */
  readonly pieces: number;
  /** From the request's last byte written to the first text, ms. */
  readonly ttftMs: number;
  /** Between one arrival of text and the next, ms; text of one read arrived at once. */
  readonly gapsMs: readonly number[];
  /** When text arrived, as performance.now() reads. */
  readonly timesMs: readonly number[];
  /** When the stream ended, as performance.now() reads. */
  readonly endMs: number;
  /** As the server counts them. */
  readonly completionTokens: number;
}

/** Streams one completion to its end. Rejects on anything but a 200 that ends with [DONE], and once `signal` is aborted. */
export function stream({ agent, port, key, extras }: Target, body: object, signal?: AbortSignal): Promise<Streamed> {
  return new Promise((resolve, reject) => {
    const headers = {
      'content-type': 'application/json',
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
    };
    const to = { agent, port, host: '127.0.0.1', method: 'POST', path: '/v1/chat/completions', headers };
    const sent = request({ ...to, ...(signal && { signal }) });
    const text = JSON.stringify({ ...body, ...extras, stream: true, stream_options: { include_usage: true } });
    const times: number[] = [];
    let pieces = 0;
    let rest = '';
    let completionTokens = 0;
    let done = false;
    let from = 0;
    let now: number | undefined;
    sent.on('error', reject);
    sent.on('response', (response) => {
      response.setEncoding('utf8').on('error', reject);
      response.on('data', (chunk: string) => {
        // All text of one read is handled in one turn.
        if (now === undefined) queueMicrotask(() => (now = undefined));
        now ??= performance.now();
        const frames = (rest + chunk).split('\n\n');
        rest = frames.pop() ?? '';
        for (const frame of frames) {
          if (/"content":"(?!")/.test(frame)) {
            pieces += 1;
            if (times.at(-1) !== now) times.push(now);
          } else if (frame === 'data: [DONE]') done = true;
          const counted = /"completion_tokens":([0-9]+)/.exec(frame)?.[1];
          if (counted !== undefined) completionTokens = Number(counted);
        }
      });
      response.on('end', () => {
        if (response.statusCode !== 200 || !done) reject(new Error(`answered ${String(response.statusCode)}`));
        const gapsMs = times.slice(1).map((time, i) => time - (times[i] ?? time));
        const ttftMs = (times[0] ?? NaN) - from;
        resolve({ pieces, ttftMs, gapsMs, timesMs: times, endMs: performance.now(), completionTokens });
      });
    });
    sent.end(text, () => (from = performance.now()));
  });
}
