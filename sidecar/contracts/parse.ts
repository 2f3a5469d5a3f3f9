/** Body bytes to checked requests. Pure and synchronous: runs inline for small bodies and in the prompt host for others. */
import { toChatRequest } from './chat.js';
import { toDecisionRequest } from './decisions.js';
import { readJson } from './json.js';
import { type Parsed, refuseJson } from './refusal.js';
import type { ChatRequest, DecisionRequest, Route } from './requests.js';
import { toSystemOneRequest } from './systemone.js';

export type { Parsed } from './refusal.js';

/** Parses and checks the body of any route. `invalid` is always a 400; nothing throws. */
export function parseBody(route: Route, bytes: Uint8Array): Parsed<ChatRequest | DecisionRequest> {
  return route === 'chat' ? parseChat(bytes) : parseDecisions(route, bytes);
}

/** Parses and checks the body of POST /chat/completions. */
export function parseChat(bytes: Uint8Array): Parsed<ChatRequest> {
  const read = readJson(bytes);
  return read.ok ? toChatRequest(read.value) : refuseJson(read.fault);
}

/** Parses and checks the body of POST /decisions or POST /systemone. */
export function parseDecisions(route: 'decisions' | 'systemone', bytes: Uint8Array): Parsed<DecisionRequest> {
  const read = readJson(bytes);
  if (!read.ok) return refuseJson(read.fault);
  return route === 'decisions' ? toDecisionRequest(read.value) : toSystemOneRequest(read.value, read.text);
}
