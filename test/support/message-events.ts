/** Streams of the Messages API: their events, and the message that a client makes of them. */

type Fields = Readonly<Record<string, unknown>>;

export interface Message {
  readonly content: readonly Fields[];
  readonly usage: Readonly<Record<string, number>>;
  readonly [field: string]: unknown;
}

export interface MessageEvent {
  /** Of its line `event: `. */
  readonly name: string;
  readonly data: Fields & { readonly type: string };
}

export function eventsOf(stream: string): MessageEvent[] {
  // No `.` and no `$`: a text may have U+2028, which ends a line for both.
  return [...stream.matchAll(/event: ([^\n]*)\ndata: ([^\n]*)\n\n/g)].map(([, name = '', data = '']) => ({
    name,
    data: JSON.parse(data) as MessageEvent['data'],
  }));
}

/** What clients make of a stream. The input of a call that was cut is its text. */
export function collected(events: readonly MessageEvent[]): Message {
  let message: Record<string, unknown> = {};
  const blocks: Record<string, unknown>[] = [];
  const inputs: string[] = [];
  for (const { data } of events) {
    const at = data['index'] as number;
    const delta = data['delta'] as Record<string, string>;
    if (data.type === 'message_start') message = data['message'] as Record<string, unknown>;
    if (data.type === 'content_block_start') blocks[at] = { ...(data['content_block'] as Fields) };
    if (data.type === 'content_block_delta') {
      const { type, ...rest } = delta;
      for (const [field, text] of Object.entries(rest)) {
        if (type === 'input_json_delta') inputs[at] = (inputs[at] ?? '') + text;
        else blocks[at] = { ...blocks[at], [field]: `${(blocks[at]?.[field] as string | undefined) ?? ''}${text}` };
      }
    }
    if (data.type === 'content_block_stop' && inputs[at] !== undefined)
      blocks[at] = { ...blocks[at], input: parsed(inputs[at]) };
    if (data.type === 'message_delta')
      message = { ...message, ...delta, usage: { ...(message['usage'] as object), ...(data['usage'] as object) } };
  }
  return { ...message, content: blocks } as unknown as Message;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
