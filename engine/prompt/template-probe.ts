/**
 * Finds the form of input that a chat template supports, by rendering small conversations with marks and checking where
 * the marks appear. llama.cpp does the same with its own interpreter (common/jinja/caps.cpp); here only the output is
 * examined. Templates differ in all of this.
 */
import type { PromptConversation, Shape, ThoughtMarks } from './conversation.js';

/** Undefined if the template threw. */
type Render = (conversation: PromptConversation, shape: Shape) => string | undefined;

const MARK = {
  user: 'probe-user-text',
  system: 'probe-system-text',
  moreSystem: 'probe-more-system-text',
  tool: 'probe_tool',
  description: 'probe-tool-description',
  key: 'probe_key',
  value: 'probe-value',
  result: 'probe-tool-result',
  said: 'probe-said-text',
  thought: 'probe-thought-text',
} as const;

const USER = { role: 'user', content: MARK.user };

/** Mistral's templates insist on ids of nine letters and digits. */
const CALL_ID = 'probe0001';

const TOOLS = [
  {
    type: 'function',
    function: {
      name: MARK.tool,
      description: MARK.description,
      parameters: {
        type: 'object',
        properties: { [MARK.key]: { type: 'string', description: 'A text' } },
        required: [MARK.key],
      },
    },
  },
];

const CALLER = {
  role: 'assistant',
  content: null,
  tool_calls: [
    {
      id: CALL_ID,
      type: 'function',
      function: { name: MARK.tool, arguments: JSON.stringify({ [MARK.key]: MARK.value }) },
    },
  ],
};

const RESULT = { role: 'tool', tool_call_id: CALL_ID, content: MARK.result };

const TOOL_LOOP: PromptConversation = { messages: [USER, CALLER, RESULT], tools: TOOLS };

/** Most templates leave out the thoughts before the last question, so they are probed after it. */
const THOUGHTS: readonly PromptConversation[] = [
  { messages: [USER, { ...CALLER, content: MARK.said, reasoning_content: MARK.thought }, RESULT], tools: TOOLS },
  { messages: [USER, { role: 'assistant', content: MARK.said, reasoning_content: MARK.thought }] },
];

/**
 * The template's form (`source`: its text), and whether offered tools are rendered; undefined if it cannot render one user message in any
 * form.
 */
export function probeShape(
  source: string,
  render: Render,
): { readonly shape: Shape; readonly tools: boolean } | undefined {
  const base = probePlain(render);
  if (base === undefined) return undefined;
  const system = probeSystem(render, base);
  const shape = probeThought(render, probeNoReply(render, probeToolLoop(render, system)));
  const lists = (form: Shape): boolean =>
    shows(render({ messages: [USER], tools: TOOLS }, form), MARK.tool, MARK.description);
  if (lists(shape)) return { shape, tools: true };
  const named = { ...shape, functions: true };
  return /\bfunctions\b/.test(source) && lists(named) ? { shape: named, tools: true } : { shape, tools: false };
}

function probePlain(render: Render): Shape | undefined {
  for (const content of ['string', 'parts'] as const) {
    // None is what transformers passes, so that templates are written for it.
    for (const noTools of ['null', 'absent', 'empty'] as const) {
      // A system role is assumed here: without it the one message would be left as it is nevertheless.
      const shape: Shape = {
        content,
        noTools,
        arguments: 'object',
        noContent: '',
        thought: 'reasoning_content',
        system: true,
      };
      if (shows(render({ messages: [USER] }, shape), MARK.user)) return shape;
    }
  }
  return undefined;
}

/** Whether there is a system role, and whether the template takes two messages of it at the beginning: some throw, some drop one. */
function probeSystem(render: Render, base: Shape): Shape {
  const message = { role: 'system', content: MARK.system };
  const system = shows(render({ messages: [message, USER] }, base), MARK.system);
  const two = [message, { role: 'system', content: MARK.moreSystem }, USER];
  const takesTwo = shows(render({ messages: two }, base), MARK.system, MARK.moreSystem);
  // With tools some take the second message for the user's first.
  const tools = [{ type: 'function', function: { name: 'probe', description: 'A tool', parameters: {} } }];
  const asUser = [message, { role: 'user', content: MARK.moreSystem }, USER];
  const [listed, taken] = [two, asUser].map((messages) => render({ messages, tools }, base));
  const joinsSystem = !takesTwo || (listed !== undefined && listed === taken && 'beside tools');
  return { ...base, system, ...(joinsSystem !== false && { joinsSystem }) };
}

/** The first form in which the arguments come out; failing that, the first that renders the loop; failing that, llama.cpp's. */
function probeToolLoop(render: Render, base: Shape): Shape {
  let renders: Shape | undefined;
  // Objects first: text in place of one is often passed through `tojson` a second time.
  for (const form of ['object', 'string'] as const) {
    for (const noContent of ['', null] as const) {
      const shape: Shape = { ...base, arguments: form, noContent };
      const text = render(TOOL_LOOP, shape);
      // An object that is printed as Python prints it was not looked into: text is what the model is to see.
      if (shows(text, MARK.result, MARK.value) && !shows(text, `{'${MARK.key}'`)) return shape;
      if (shows(text, MARK.result)) renders ??= shape;
    }
  }
  return renders ?? base;
}

/** Some templates throw at a reply without text, unless it is a part. */
function probeNoReply(render: Render, base: Shape): Shape {
  const conversation = { messages: [USER, { role: 'assistant', content: '' }, USER] };
  const shape = { ...base, noReply: 'part' as const };
  const throws = render(conversation, base) === undefined;
  return throws && render(conversation, shape) !== undefined ? shape : base;
}

/** The first form in which a thought comes out; failing that, the usual one, which a template without thoughts ignores. */
function probeThought(render: Render, base: Shape): Shape {
  for (const thought of ['reasoning_content', 'thinking', 'thinking-alone', 'part'] as const) {
    const shape = { ...base, thought };
    const texts = THOUGHTS.map((conversation) => render(conversation, shape));
    // If it is quoted, it is not a thought but a list of parts that the template printed.
    const whole = texts.every((text) => text !== undefined && !/["']probe-thought-text["']/.test(text));
    if (whole && texts.some((text) => shows(text, MARK.thought))) return shape;
  }
  return base;
}

/**
 * The form in which a thought within an earlier reply's content is handed over as the template itself would take it out;
 * `plain` where it does not. The first that renders the same, failing that the first that does but for white space.
 */
export function shapeWithMarks(render: Render, plain: Shape, marks: Omit<ThoughtMarks, 'rest'> | undefined): Shape {
  if (marks === undefined) return plain;
  const { start, end } = marks;
  const said = { role: 'assistant', content: `${start}\n${MARK.thought}\n${end}\n\n${MARK.said}` };
  const rendered = (shape: Shape): string | undefined => render({ messages: [USER, said, USER] }, shape);
  const own = rendered(plain);
  const forms = (['lines', 'as it is', 'trimmed', 'after a line', 'exactly'] as const).map((rest) => ({
    ...plain,
    marks: { start, end, rest },
  }));
  const squeezed = (text: string | undefined): string | undefined => text?.replace(/\s+/g, '');
  const same = forms.find((shape) => rendered(shape) === own);
  return (
    (own === undefined ? undefined : (same ?? forms.find((shape) => squeezed(rendered(shape)) === squeezed(own)))) ??
    plain
  );
}

function shows(text: string | undefined, ...marks: readonly string[]): boolean {
  return text !== undefined && marks.every((mark) => text.includes(mark));
}
