/** A chat over HTTP that grows turn by turn, and the times of each turn. */
import { setTimeout } from 'node:timers/promises';

export interface ChatTarget {
  readonly port: number;
  readonly key?: string;
  /** Fields of every body that only this server has. */
  readonly extras?: Readonly<Record<string, unknown>>;
}

export interface Turn {
  /** From the request to the first text, ms. */
  readonly ttftMs: number;
  readonly promptTokens: number;
  /** Of these, reused. */
  readonly cachedTokens: number;
}

interface Chunk {
  readonly choices?: readonly { readonly delta?: { readonly content?: string } }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number };
  };
}

/** Sends each question `pauseMs` after the reply to the one before it, greedily, with replies of `tokens`. */
export async function converse(
  target: ChatTarget,
  model: string,
  questions: readonly string[],
  tokens: number,
  pauseMs = 0,
): Promise<readonly Turn[]> {
  const messages: { role: string; content: string }[] = [];
  const turns: Turn[] = [];
  for (const content of questions) {
    if (messages.length > 0 && pauseMs > 0) await setTimeout(pauseMs);
    messages.push({ role: 'user', content });
    const { reply, turn } = await ask(target, { model, messages, max_tokens: tokens, temperature: 0 });
    messages.push({ role: 'assistant', content: reply });
    turns.push(turn);
  }
  return turns;
}

/** Asks once, with a stream of which the first text is timed. */
export async function ask({ port, key, extras }: ChatTarget, body: object): Promise<{ reply: string; turn: Turn }> {
  const from = performance.now();
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      // llama-server closes idle connections, just when the next request is on its way.
      connection: 'close',
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
    },
    body: JSON.stringify({ ...body, ...extras, stream: true, stream_options: { include_usage: true } }),
  });
  if (!response.ok || !response.body) throw new Error(`answered ${response.status}: ${await response.text()}`);
  let [reply, rest, ttftMs] = ['', '', NaN];
  let usage: Chunk['usage'];
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const now = performance.now();
    const frames = (rest + text).split('\n\n');
    rest = frames.pop() ?? '';
    for (const frame of frames) {
      if (!frame.startsWith('data: {')) continue;
      const chunk = JSON.parse(frame.slice('data: '.length)) as Chunk;
      const content = chunk.choices?.[0]?.delta?.content ?? '';
      if (content !== '' && reply === '') ttftMs = now - from;
      reply += content;
      usage = chunk.usage ?? usage;
    }
  }
  const cachedTokens = usage?.prompt_tokens_details?.cached_tokens ?? NaN;
  return { reply, turn: { ttftMs, promptTokens: usage?.prompt_tokens ?? NaN, cachedTokens } };
}
