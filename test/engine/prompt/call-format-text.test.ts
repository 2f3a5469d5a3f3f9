import t from 'tap';
import { callFormatText } from '../../../engine/prompt/call-format-text.js';
import { WRAPPED } from '../../../engine/prompt/call-syntax.js';
import { TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';

t.test('how a model calls tools, for the operator', (t) => {
  t.match(callFormatText(undefined), { native: false, says: /takes no tools.*422/ });
  t.match(callFormatText(WRAPPED), { native: false, says: /JSON instruction/ });
  t.same(callFormatText(TAGGED_SYNTAXES['Qwen3-Coder']), {
    native: true,
    says: 'its own format: calls behind <tool_call>, arguments one by one between tags, several calls a reply',
  });
  const llama = { mark: '', open: '{"name": "', between: '", "parameters": ', close: '}' };
  t.match(callFormatText(llama), {
    native: true,
    says: /at the reply's beginning, arguments as JSON, one call a reply/,
  });
  t.end();
});
