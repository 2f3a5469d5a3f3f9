import t from 'tap';
import { callFormatText, type ToolUse } from '../../../engine/prompt/tool-use.js';
import { WRAPPED } from '../../../engine/prompt/call-syntax.js';
import { TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';

const SHOWN = { lists: true, shows: true, chosen: false };
const says = (use: Partial<ToolUse>) => callFormatText({ ...SHOWN, ...use });

t.test('how a model calls tools, as text for the operator', (t) => {
  t.match(says({ chosen: true }), { native: false, chosen: true, says: /as toolFormat says.*422/ });
  t.match(says({ calls: WRAPPED }), { native: false, chosen: false, says: /JSON instruction.*is not known$/ });
  t.match(says({ calls: WRAPPED, chosen: true }), { chosen: true, says: /JSON instruction.*as toolFormat says$/ });
  t.match(says({ calls: WRAPPED, lists: false, shows: false }), {
    native: false,
    says: /lists no tools, so that a system message does, and earlier calls and results as plain text$/,
  });
  const qwen = TAGGED_SYNTAXES['Qwen3-Coder'];
  t.same(says({ calls: qwen }), {
    native: true,
    chosen: false,
    says: 'its own format: calls after <tool_call>, arguments one by one between tags, several calls a reply',
  });
  t.match(says({ calls: qwen, chosen: true }), { native: true, says: /^the format that toolFormat names: / });
  const llama = { mark: '', open: '{"name": "', between: '", "parameters": ', close: '}' };
  t.match(says({ calls: llama }), {
    native: true,
    says: /at the reply's beginning, arguments as JSON, one call a reply/,
  });
  t.end();
});
