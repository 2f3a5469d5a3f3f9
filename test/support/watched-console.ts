/** A sidecar with a viewer of its console, for contract tests of the operators’ listener. */
import type { Test } from 'tap';
import { PATIENT_QUEUE } from './config-parts.js';
import { FeedReader } from './console-feed.js';
import { InProcess, type Options } from './in-process.js';
import { RawConnection, type RawResponse } from './raw-http.js';

export const CHAT = '/v1/chat/completions';
export const MODELS = [
  { id: 'm', kind: 'chat', seats: 2 },
  { id: 'd', kind: 'decision', seats: 1 },
] as const;

/** A quarter of a second is the shortest interval. */
export function start(t: Test, config: Options['config'] = {}): Promise<InProcess> {
  return InProcess.start(t, {
    models: MODELS,
    config: { console: { intervalMs: 250 }, queue: PATIENT_QUEUE, ...config },
  });
}

/** One request on the operators' listener. */
export async function ask(
  { app }: InProcess,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  method = 'GET',
): Promise<RawResponse> {
  const connection = await RawConnection.open(app.operatorsPort);
  const response = await connection.request(method, path, headers).response({ head: method === 'HEAD' });
  connection.close();
  return response;
}

/** Opens the feed, until the test ends. */
export async function watch(
  t: Test,
  { app }: InProcess,
  headers: Readonly<Record<string, string>> = {},
): Promise<FeedReader> {
  const feed = await FeedReader.open(app.operatorsPort, headers);
  t.teardown(() => feed.close());
  return feed;
}
