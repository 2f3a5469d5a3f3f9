/**
 * Calls of a web page of another origin, run by Chromium (browser.e2e.ts) only. It calls the sidecar, collects what a
 * page can read of the answers, and reports that. It uses only what browsers and Node’s types have in common.
 */
import type { OpenAI as Client } from 'openai';

/** One call as the page sees it. `failed`: the browser did not give the answer to the page. */
export type PageCall =
  | { readonly kind: 'failed'; readonly name: string }
  | {
      readonly kind: 'answer';
      readonly status: number;
      readonly headers: Readonly<Record<string, string>>;
      readonly body: string;
    };

export interface Report {
  readonly streamed: PageCall;
  readonly whole: PageCall;
  readonly models: PageCall;
  readonly health: PageCall;
  readonly badKey: PageCall;
  readonly badKeys: PageCall;
  readonly withCookies: PageCall;
  readonly gatewayHeader: PageCall;
  /** How a stream ended that the page aborted after its first part. */
  readonly aborted: string;
  /** PerformanceServerTiming of the streamed call; absent: the browser has none. */
  readonly timing: readonly { readonly name: string; readonly duration: number }[];
  /** Whether the streamed call’s own times are exposed. */
  readonly timed: boolean;
  /** Results of OpenAI’s client: the same stream, and an invalid key. */
  readonly sdk: { readonly text: string; readonly requestId: string | null; readonly error: string };
}

interface Given {
  readonly base: string;
  readonly key: string;
  readonly model: string;
}

const given = (await (await fetch('/given')).json()) as Given;
const chatUrl = `${given.base}/chat/completions`;
const body = (more: object = {}): string =>
  JSON.stringify({
    model: given.model,
    messages: [{ role: 'user', content: 'Hello.' }],
    max_tokens: 16,
    temperature: 0,
    ...more,
  });
const post = (text: string, key: string, more: RequestInit = {}): RequestInit => ({
  method: 'POST',
  headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
  body: text,
  ...more,
});

async function call(url: string, init: RequestInit = {}): Promise<PageCall> {
  try {
    const response = await fetch(url, init);
    return {
      kind: 'answer',
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: await response.text(),
    };
  } catch (error) {
    return { kind: 'failed', name: error instanceof Error ? error.name : 'unknown' };
  }
}

/** Aborts a long stream after its first part. */
async function abort(): Promise<string> {
  const leave = new AbortController();
  try {
    const endless = body({ stream: true, max_tokens: 1500, frequency_penalty: -2 });
    const response = await fetch(chatUrl, post(endless, given.key, { signal: leave.signal }));
    const reader = response.body?.getReader();
    await reader?.read();
    leave.abort();
    while ((await reader?.read())?.done === false);
    return 'it ended by itself';
  } catch (error) {
    return error instanceof Error ? error.name : 'unknown';
  }
}

async function sdk(): Promise<Report['sdk']> {
  // The client as npm has it, served beside this page.
  const path: string = '/node_modules/openai/index.mjs';
  const { OpenAI } = (await import(path)) as { OpenAI: typeof Client };
  const client = (apiKey: string): Client =>
    new OpenAI({ baseURL: given.base, apiKey, dangerouslyAllowBrowser: true, maxRetries: 0 });
  const asked = {
    model: given.model,
    messages: [{ role: 'user' as const, content: 'Hello.' }],
    max_tokens: 16,
    temperature: 0,
  };
  try {
    const { data, request_id } = await client(given.key)
      .chat.completions.create({ ...asked, stream: true })
      .withResponse();
    let text = '';
    for await (const chunk of data) text += chunk.choices[0]?.delta.content ?? '';
    const error = await client('ra-no-such-key')
      .chat.completions.create(asked)
      .then(
        () => 'none',
        (reason: unknown) => (reason as { readonly code?: string }).code ?? String(reason),
      );
    return { text, requestId: request_id, error };
  } catch (error) {
    return { text: '', requestId: null, error: String(error) };
  }
}

/** A PerformanceResourceTiming, as browsers have it. */
interface Entry {
  readonly responseStart: number;
  readonly serverTiming: readonly { readonly name: string; readonly duration: number }[];
}

/** The browser adds a call’s entry after its body was read, in a separate task. */
async function entryOf(url: string): Promise<Entry | undefined> {
  const seen = new Promise<Entry>((resolve) => {
    new PerformanceObserver((list) => {
      for (const entry of list.getEntriesByName(url)) resolve(entry as unknown as Entry);
    }).observe({ type: 'resource', buffered: true });
  });
  const none = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 5000));
  return await Promise.race([seen, none]);
}

const streamed = await call(`${chatUrl}?first`, post(body({ stream: true }), given.key));
const entry = await entryOf(`${chatUrl}?first`);
const report: Report = {
  streamed,
  whole: await call(chatUrl, post(body(), given.key)),
  models: await call(`${given.base}/models`, { headers: { Authorization: `Bearer ${given.key}` } }),
  health: await call(`${given.base.replace('/v1', '')}/healthz`),
  badKey: await call(chatUrl, post(body(), 'ra-no-such-key')),
  badKeys: await call(chatUrl, post(body(), 'ra-no-other-key')),
  withCookies: await call(chatUrl, post(body(), given.key, { credentials: 'include' })),
  gatewayHeader: await call(chatUrl, { ...post(body(), given.key), headers: { 'x-ra-account': 'acme' } }),
  aborted: await abort(),
  timing: (entry?.serverTiming ?? []).map(({ name, duration }) => ({ name, duration })),
  timed: (entry?.responseStart ?? 0) > 0,
  sdk: await sdk(),
};
await fetch('/report', { method: 'POST', body: JSON.stringify(report) });
