import { CHAT } from '../../test/support/sidecar.js';
import type { Target } from './attempt.js';

/** Seconds for which a server may still refuse after all callers have left. */
const SETTLE_TRIES = 60;

/** Callers at once, for how long, and tokens of a reply. */
export interface ClosedLoop {
  readonly callers: number;
  readonly seconds: number;
  readonly tokens: number;
}

/** Replies a second of callers who each send when their last one ended. */
export async function served(target: Target, { callers, seconds, tokens }: ClosedLoop): Promise<number> {
  const until = performance.now() + seconds * 1000;
  let count = 0;
  const caller = async (): Promise<void> => {
    while (performance.now() < until) {
      await ask(target, tokens);
      count += 1;
    }
  };
  const from = performance.now();
  await Promise.all(Array.from({ length: callers }, caller));
  return count / ((performance.now() - from) / 1000);
}

/** One whole reply, to a caller that waits for it. */
async function ask(target: Target, tokens: number): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${target.port}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${target.keys['heavy'] ?? ''}` },
    body: JSON.stringify({
      model: CHAT,
      messages: [{ role: 'user', content: 'Tell me about the sea, part 0' }],
      max_tokens: tokens,
      temperature: 0,
      ...target.extras,
    }),
  });
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`answered ${response.status}`);
}

/** Waits until the backlog is processed: a request without a deadline is served. */
export async function settled(target: Target, tokens: number): Promise<void> {
  for (let left = SETTLE_TRIES; ; left--) {
    try {
      await ask(target, tokens);
      return;
    } catch (error) {
      if (left === 0) throw error;
      await new Promise((later) => setTimeout(later, 1000));
    }
  }
}
