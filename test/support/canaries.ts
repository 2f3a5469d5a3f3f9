/**
 * Requests with a canary in every place where a caller’s content can be: text that no other part of the system writes,
 * so that finding it anywhere proves that content got there.
 */
import { CHAT, DECIDE } from './sidecar.js';

/** Every canary begins with it. Letters and digits only, so that it is the same in JSON, in a URL and in a name. */
export const MARK = 'kanarienvogel';

let made = 0;

/** A new canary. */
export function canary(): string {
  made += 1;
  return `${MARK}${made}z`;
}

export type Fields = Readonly<Record<string, unknown>>;

/** A chat body that can be served. */
export function chatBody(more: Fields = {}): Fields {
  return {
    model: CHAT,
    messages: [
      { role: 'system', content: canary(), name: canary() },
      { role: 'user', content: [{ type: 'text', text: canary() }], name: canary() },
      { role: 'assistant', content: canary(), reasoning_content: canary() },
      { role: 'user', content: `Tell me of the sea. ${canary()}` },
    ],
    stop: [canary(), canary()],
    user: canary(),
    max_tokens: 24,
    seed: 5,
    ...more,
  };
}

export function toolFields(): Fields {
  const schema = { type: 'string', description: canary(), enum: [canary()], default: canary(), pattern: canary() };
  const parameters = { type: 'object', properties: { [canary()]: schema }, required: [canary()] };
  const name = canary();
  return {
    tools: [{ type: 'function', function: { name, description: canary(), parameters } }],
    tool_choice: { type: 'function', function: { name } },
  };
}

/** A tool conversation, one turn of each role. */
export function toolMessages(given = `{"${canary()}":1}`): readonly Fields[] {
  const call = { id: canary(), type: 'function', function: { name: canary(), arguments: given } };
  return [
    { role: 'user', content: canary() },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', content: canary(), tool_call_id: call.id },
  ];
}

/** A tool to which nothing can be passed. */
function impossibleTool(): Fields {
  const never = { allOf: [{ enum: [canary()] }, { enum: [canary()] }] };
  const parameters = { type: 'object', properties: { [canary()]: never }, required: [] as string[] };
  parameters.required.push(...Object.keys(parameters.properties));
  return { tools: [{ type: 'function', function: { name: canary(), parameters } }] };
}

/** A decisions body that can be served. */
export function decisionBody(more: Fields = {}): Fields {
  return {
    model: DECIDE,
    input: canary(),
    questions: [
      { id: canary(), type: 'yes_no', question: canary(), yes: canary(), no: canary() },
      {
        id: canary(),
        type: 'choice',
        question: canary(),
        options: [{ name: canary(), description: canary() }, { name: canary() }],
      },
      { id: canary(), type: 'score', question: canary(), levels: [canary(), canary()] },
    ],
    ...more,
  };
}

/** A systemone body that can be served. */
export function systemOneBody(more: Fields = {}): Fields {
  return {
    model: DECIDE,
    state: { [canary()]: [canary(), { [canary()]: canary() }] },
    questions: {
      [canary()]: { type: 'noul', instructions: canary(), criteria: { true: canary(), false: canary() } },
      [canary()]: { type: 'choice', instructions: [canary()], criteria: { [canary()]: canary(), [canary()]: null } },
      [canary()]: { type: 'score', instructions: { [canary()]: canary() }, criteria: [canary(), canary()] },
    },
    ...more,
  };
}

/** A request that must be refused. */
export interface Refusal {
  readonly status: number;
  readonly path: string;
  readonly body: Fields | string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
}

const CHATS = '/chat/completions';

/** Every way in which one request’s body can be invalid. */
export function wrongBodies(): readonly Refusal[] {
  const chat = (body: Refusal['body']): Refusal => ({ status: 400, path: CHATS, body });
  const decisions = (more: Fields): Refusal => ({ status: 400, path: '/decisions', body: decisionBody(more) });
  const systemOne = (more: Fields): Refusal => ({ status: 400, path: '/systemone', body: systemOneBody(more) });
  const message = (more: Fields): Refusal =>
    chat(chatBody({ messages: [{ role: 'user', content: canary(), ...more }] }));
  const question = { id: canary(), type: 'yes_no', question: canary() };
  const twice = canary();
  return [
    // Not the accepted JSON.
    chat(canary()),
    chat(`{"model":"${canary()}`),
    chat(`{"${canary()}":"${canary()}",}`),
    chat(`\uFEFF"${canary()}"`),
    chat(Buffer.concat([Buffer.from(`"${canary()}`), Buffer.of(0xff, 0x22)])),
    chat(`${`{"${canary()}":`.repeat(200)}"${canary()}"${'}'.repeat(200)}`),
    chat(`{"${twice}":1,"${twice}":2}`),
    chat(`"${canary()}\\ud800"`),
    chat(JSON.stringify([canary()])),
    // Outside the contract.
    chat(chatBody({ [canary()]: canary() })),
    chat(chatBody({ model: `-${canary()}` })),
    chat(chatBody({ temperature: canary() })),
    chat(chatBody({ stop: [canary(), canary(), canary(), canary(), canary()] })),
    chat(chatBody({ user: canary().padEnd(300, 'x') })),
    chat(chatBody({ reasoning_effort: canary() })),
    chat(chatBody({ response_format: { type: canary() } })),
    chat(chatBody({ tool_choice: canary() })),
    message({ role: canary() }),
    message({ [canary()]: canary() }),
    message({ name: `${canary()} ${canary()}` }),
    message({ content: [{ type: canary(), text: canary() }] }),
    message({ content: [{ type: 'image_url', image_url: { url: `ftp://${canary()}/` } }] }),
    chat(
      chatBody({
        tools: [
          {
            type: 'function',
            function: {
              name: canary(),
              parameters: { type: 'object', properties: { [canary()]: { type: canary(), [canary()]: canary() } } },
            },
          },
        ],
      }),
    ),
    // Well-formed, and too much for the model.
    message({ content: [{ type: 'image_url', image_url: { url: `https://${canary()}.example/a.png` } }] }),
    message({ content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${canary()}` } }] }),
    message({ content: `${canary()} `.repeat(5000) }),
    chat(chatBody({ max_tokens: 1_000_000 })),
    chat(chatBody({ model: DECIDE })),
    decisions({ model: CHAT }),
    decisions({ input: `${canary()} `.repeat(9000) }),
    decisions({ [canary()]: canary() }),
    decisions({ prompt_format_version: 999 }),
    decisions({ questions: [{ ...question, type: canary() }] }),
    decisions({ questions: [{ ...question, [canary()]: canary() }] }),
    decisions({ questions: [question, question] }),
    decisions({ questions: [{ ...question, type: 'choice', options: [{ name: twice }, { name: ` ${twice}` }] }] }),
    decisions({ questions: [{ ...question, type: 'choice', options: [{ name: `${canary()}\n` }, { name: 'b' }] }] }),
    systemOne({ questions: { [canary()]: { type: canary(), instructions: canary() } } }),
    systemOne({ questions: { [canary()]: { type: 'noul', instructions: canary(), [canary()]: canary() } } }),
    systemOne({ state: { [canary()]: { [canary()]: { [canary()]: { [canary()]: canary() } } } } }),
    systemOne({ questions: { [twice]: { type: 'score', instructions: canary(), criteria: { [canary()]: 1 } } } }),
  ];
}

/** Refused for another reason than its body. */
export function otherRefusals(): readonly Refusal[] {
  const headed = (status: number, headers: Record<string, string>): Refusal => ({
    status,
    path: CHATS,
    body: chatBody(),
    headers,
  });
  return [
    headed(401, { authorization: `Bearer ${canary()}` }),
    headed(401, { authorization: canary() }),
    headed(401, { authorization: `Basic ${canary()} ${canary()}` }),
    headed(415, { 'content-type': `text/${canary()}` }),
    { status: 403, path: CHATS, body: chatBody({ model: canary() }) },
    { status: 403, path: '/decisions', body: decisionBody({ model: canary() }) },
    { status: 403, path: '/systemone', body: systemOneBody({ model: canary() }) },
    { status: 404, path: '/completions', body: { model: CHAT, prompt: canary(), suffix: canary() } },
    { status: 404, path: `/${canary()}`, body: chatBody() },
    { status: 404, path: `/chat/completions/${canary()}?${canary()}=${canary()}`, body: chatBody() },
    { status: 405, path: `/models?${canary()}`, body: chatBody() },
    { status: 413, path: '/decisions', body: decisionBody({ input: `${canary()} `.repeat(60_000) }) },
    { status: 413, path: '/systemone', body: systemOneBody({ state: `${canary()} `.repeat(60_000) }) },
    { status: 422, path: CHATS, body: chatBody({ messages: toolMessages(`{"${canary()}`) }) },
    { status: 422, path: CHATS, body: chatBody(impossibleTool()) },
  ];
}
