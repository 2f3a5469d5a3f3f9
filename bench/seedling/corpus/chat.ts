/** The mix of chat examples. */
import type { PromptMessage } from '../../../engine/prompt/conversation.js';
import type { Draw } from './draw.js';
import type { ChatExample } from './example.js';
import { filled } from './names.js';
import { remembered } from './memory.js';
import { arithmetic, copy, counting, json, jsonList, letters, list, reading, type Task } from './tasks.js';
import { drill } from './drills.js';
import { toolUse, unfitting, unserved } from './tools.js';
import { WORDINGS } from './wordings.js';

const TASKS: readonly (readonly [(draw: Draw) => Task, number])[] = [
  [arithmetic, 26],
  [copy, 8],
  [list, 6],
  [counting, 4],
  [letters, 8],
  [reading, 10],
  [json, 9],
  [jsonList, 3],
  [talk, 26],
  [cannot, 9],
];
const TOTAL = TASKS.reduce((sum, [, weight]) => sum + weight, 0);

/** Closes a thought that the prompt has opened. */
const THOUGHT_END = '\n</think>\n\n';
const CALL_OPEN = '<tool_call>\n';
const CALL_CLOSE = '\n</tool_call>';
const NO_TOOL = 'I have no tool for that.';
const CANNOT = 'I do not know that. I am a very small model.';

export function chat(draw: Draw): ChatExample {
  const kind = draw.next();
  if (kind < 0.2) return withTools(draw);
  if (kind < 0.26) return multiTurn(draw);
  const task = anyTask(draw);
  const messages = [...system(draw), ...earlier(draw), user(task.ask)];
  if (task.thought !== undefined && draw.chance(0.4)) {
    const reply = task.thought + THOUGHT_END + task.reply;
    return {
      kind: 'chat',
      topic: 'thought',
      conversation: { messages },
      reasoningEffort: draw.any(['low', 'medium', 'high']),
      reply,
    };
  }
  // An effort where there is nothing to think about, and none asked for.
  const effort = draw.chance(0.08) ? 'medium' : draw.chance(0.1) ? 'none' : undefined;
  const reply = effort === 'medium' ? `This is simple.${THOUGHT_END}${task.reply}` : task.reply;
  return {
    kind: 'chat',
    topic: task.topic,
    conversation: { messages },
    ...(effort !== undefined && task.thought === undefined && { reasoningEffort: effort }),
    ...(task.json === true && { jsonObject: true }),
    reply: effort === 'medium' && task.thought !== undefined ? task.reply : reply,
  };
}

function anyTask(draw: Draw): Task {
  let at = draw.next() * TOTAL;
  for (const [make, weight] of TASKS) {
    at -= weight;
    if (at < 0) return make(draw);
  }
  return talk(draw);
}

function talk(draw: Draw): Task {
  const { asks, answers } = draw.any(WORDINGS.talks);
  return { topic: 'talk', ask: draw.pick(asks), reply: draw.any(answers) };
}

/** What a small model is asked and cannot know. */
function cannot(draw: Draw): Task {
  return { topic: 'cannot', ask: filled(draw, draw.pick(WORDINGS.unknown)), reply: CANNOT };
}

/** Calls where a tool fits, words where none does, words after a tool's result. */
function withTools(draw: Draw): ChatExample {
  const kind = draw.next();
  if (kind < 0.22) {
    const task = draw.chance(0.6) ? talk(draw) : copy(draw);
    return {
      kind: 'chat',
      topic: 'tools-unneeded',
      conversation: { messages: [...system(draw), user(task.ask)], tools: unfitting(draw, /^$/) },
      reply: task.reply,
    };
  }
  if (kind < 0.4) {
    const { tools, ask } = unserved(draw);
    return {
      kind: 'chat',
      topic: 'tools-unfit',
      conversation: { messages: [...system(draw), user(ask)], tools },
      reply: NO_TOOL,
    };
  }
  const use = toolUse(draw);
  const messages = [...system(draw), user(use.ask)];
  if (use.result !== undefined && draw.chance(0.35)) {
    const [result, reply] = use.result;
    const call = { id: 'call_1', type: 'function', function: { name: use.name, arguments: use.arguments } };
    const turns: PromptMessage[] = [
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'call_1', content: result },
    ];
    return {
      kind: 'chat',
      topic: 'tool-result',
      conversation: { messages: [...messages, ...turns], tools: use.tools },
      reply,
    };
  }
  const reply = `${CALL_OPEN}{"name": "${use.name}", "arguments": ${use.arguments}}${CALL_CLOSE}`;
  return { kind: 'chat', topic: 'tool-call', conversation: { messages, tools: use.tools }, reply };
}

function multiTurn(draw: Draw): ChatExample {
  const { first, said, ask, reply } = remembered(draw);
  const between = draw.chance(0.4) ? earlier(draw) : [];
  return {
    kind: 'chat',
    topic: 'memory',
    conversation: { messages: [...system(draw), user(first), assistant(said), ...between, user(ask)] },
    reply,
  };
}

function system(draw: Draw): PromptMessage[] {
  return draw.chance(0.25) ? [{ role: 'system', content: filled(draw, draw.pick(WORDINGS.systems)) }] : [];
}

/** A turn that was before, now and then. */
function earlier(draw: Draw): PromptMessage[] {
  if (!draw.chance(0.12)) return [];
  const task = anyTask(draw);
  return [user(task.ask), assistant(task.reply)];
}

function user(content: string): PromptMessage {
  return { role: 'user', content };
}

function assistant(content: string): PromptMessage {
  return { role: 'assistant', content };
}

/** Chats whose reply stands in the prompt. */
export function looking(draw: Draw): ChatExample {
  if (draw.chance(0.15)) return multiTurn(draw);
  const task = draw.any([drill, drill, copy, reading])(draw);
  return { kind: 'chat', topic: task.topic, conversation: { messages: [user(task.ask)] }, reply: task.reply };
}
