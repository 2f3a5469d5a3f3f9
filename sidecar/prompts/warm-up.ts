/**
 * Requests that the sidecar sends through its prompt hosts before it is ready. Code that has not run yet takes several times as
 * long, in the sidecar, in the hosts and in their threads, and the first caller should not wait longer than the next.
 */
import type { BodyForm } from '../contracts/requests.js';
import { AbortHandle } from '../lib/abort.js';
import type { CompilerTask, ModelReport } from './messages.js';
import type { PromptMaker } from './prompt-maker.js';

/** Charged for the host time; no caller's account is empty. */
const NO_ACCOUNT = { account: '', weight: 1 };

type Opener = Pick<PromptMaker, 'open'>;

/**
 * Sends a chat past the bound of the compiler's work to each host: one short body, and one of more than `inlineBytes`. Settles when
 * both are refused or have failed; does nothing where no chat model takes tools. `form`: of the chats that callers send.
 */
export async function warmUp(
  prompts: Opener,
  models: readonly ModelReport[],
  form: BodyForm,
  inlineBytes: number,
): Promise<void> {
  const model = models.find(({ tools, calls }) => tools && calls !== undefined);
  if (model === undefined) return;
  const short = expensiveChat(model.id);
  // JSON may end in spaces.
  const long = Buffer.alloc(Math.max(inlineBytes + 1, short.length), ' ');
  long.set(short);
  await Promise.all([short, long].map((bytes) => send(prompts, form, bytes)));
}

async function send(prompts: Opener, form: BodyForm, bytes: Uint8Array): Promise<void> {
  const body = prompts.open(form, { bytes, length: bytes.length }, NO_ACCOUNT);
  const signal = new AbortHandle();
  const checked = await body.check(signal);
  if (checked.kind === 'checked') await body.tokenize(signal);
  body.close();
}

const names = Array.from({ length: 100 }, (_, i) => `p${i}`);
/** Constructs that become rules: required names, texts, numbers and alternatives. */
const written = {
  type: 'object',
  properties: {
    ...Object.fromEntries(names.map((name) => [name, { type: 'string', minLength: 1 }])),
    n: { minimum: 1 },
  },
  required: names,
};
/** Combinations of each property, which are expanded. All together are past the bound; none is that alone, or it would be refused at once. */
const either = (length: number): object => ({ anyOf: [{ minLength: 1 }, { minLength: length }] });
const multiplied = {
  type: 'object',
  properties: Object.fromEntries(
    names.slice(0, 10).map((name, i) => [name, { allOf: Array.from({ length: 8 }, () => either(2 + i)) }]),
  ),
};

/** A chat whose tools are past the bound of work, so that the compiler does all that it may. */
export function expensiveChat(model: string): Uint8Array {
  return Buffer.from(
    JSON.stringify({
      model,
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [written, multiplied].map((parameters, i) => ({
        type: 'function',
        function: { name: `f${i}`, parameters },
      })),
      tool_choice: 'required',
    }),
  );
}

/** The same as a task for the compiler thread. */
export const WARM_UP: CompilerTask = {
  form: 'chat',
  syntax: { mark: '<', open: '<', between: ',', close: '>' },
  bytes: expensiveChat('m'),
};
