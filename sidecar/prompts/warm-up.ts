/**
 * The request that the sidecar sends through its prompt host before it is ready. Code that has not run yet takes several times as long, in
 * the sidecar and in the host, and the first caller should not wait longer than the next. An engine makes a step of its own before it is
 * ready (engine/scheduler/warm-up.ts).
 */
import type { BodyForm } from '../contracts/requests.js';
import { AbortHandle } from '../lib/abort.js';
import type { ModelReport } from './messages.js';
import type { PromptMaker } from './prompt-maker.js';

/** Charged for the host time; no caller's account is empty. */
const NO_ACCOUNT = { account: '', weight: 1 };

/**
 * Sends a short chat, with tools where a chat model takes them. Settles when its prompt is made or has failed; does nothing where there is
 * no chat model. `form`: of the chats that callers send.
 */
export async function warmUp(
  prompts: Pick<PromptMaker, 'open'>,
  models: readonly ModelReport[],
  form: BodyForm,
): Promise<void> {
  const chats = models.filter(({ calls }) => calls !== undefined);
  const model = chats.find(({ tools }) => tools) ?? chats[0];
  if (model === undefined) return;
  const messages = [{ role: 'user', content: 'Hello' }];
  const bytes = Buffer.from(JSON.stringify({ model: model.id, messages, ...(model.tools && { tools: someTools() }) }));
  const body = prompts.open(form, { bytes, length: bytes.length }, NO_ACCOUNT);
  const signal = new AbortHandle();
  const checked = await body.check(signal);
  if (checked.kind === 'checked') await body.tokenize(signal);
  body.close();
}

/** Enough for the schema compiler to run through most of its code. */
function someTools(): readonly object[] {
  const names = Array.from({ length: 40 }, (_, i) => `p${i}`);
  const plain = { type: 'object', properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])) };
  const combined = { allOf: names.slice(0, 8).map((name) => ({ properties: { [name]: { type: 'string' } } })) };
  const parameters = { type: 'object', properties: { plain, combined } };
  return [{ type: 'function', function: { name: 'f', parameters } }];
}
