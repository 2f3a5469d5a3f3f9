/**
 * llama-servers that compute in place of our own engine, for tests whose promises do not depend on who computes: the variable
 * TEST_LLAMA_SERVERS is a JSON object of URLs by the path of the model file (test/e2e/llama-server-contract.e2e.ts sets it).
 */
import { env } from 'node:process';

const URLS = JSON.parse(env['TEST_LLAMA_SERVERS'] ?? '{}') as Readonly<Record<string, string>>;

/** Whether servers compute in place of our own engine. */
export const ELSEWHERE = Object.keys(URLS).length > 0;

/** What a model's settings have besides, if a server is to compute it. */
export function enginePart(file: string): { readonly engine?: object } {
  const url = URLS[file];
  return url === undefined ? {} : { engine: { kind: 'llama-server', url } };
}

/** What the configuration has besides, if servers are to compute: none of them isolates. */
export function decisionsPart(): { readonly decisions?: object } {
  return ELSEWHERE ? { decisions: { isolate: false } } : {};
}
