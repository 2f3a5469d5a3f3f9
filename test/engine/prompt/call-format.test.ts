import t from 'tap';
import { compileCalls } from '../../../engine/prompt/call-format.js';
import { WRAPPED } from '../../../engine/prompt/call-syntax.js';
import { replyRules } from '../../../engine/grammar/schema.js';
import { WorkBudget } from '../../../engine/grammar/work.js';
import { CallParser } from '../../../engine/output/calls/call-parser.js';

const TOOLS = [{ type: 'function', function: { name: 'find', parameters: { type: 'object', properties: {} } } }];
const AUTO = { required: false, parallel: true };

const reply = replyRules(undefined, new WorkBudget());

/** The content of a whole reply. */
function contentOf(text: string, json: boolean): string {
  const made = compileCalls(WRAPPED, TOOLS, AUTO, reply.kind === 'ok' && json ? reply : undefined);
  if (made.kind === 'unservable') throw new Error(made.why);
  const parser = new CallParser(made.calls);
  return parser.push(text).content + parser.end().content;
}

t.test('in JSON mode an object that looks like a wrapped answer is content as it is', (t) => {
  const reply = '{"response": "hi", "n": 1}';
  t.equal(contentOf(reply, true), reply);
  t.equal(contentOf('{"response": "hi"}', false), 'hi');
  t.end();
});
