import t from 'tap';
import { endOf } from '../../../bench/soak/caller.js';

const USAGE = '{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}';
const CACHED =
  '{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}}';
const ERROR = '{"error":{"message":"m","type":"server_error","code":"bad_gateway","param":null}}';
const reported = { promptTokens: 3, cachedTokens: 0, completionTokens: 4 };

t.test('an answer is classified as whole, cut, refused or broken', async (t) => {
  for (const [name, status, text, stream, end] of [
    ['a whole reply', 200, USAGE, false, { end: 'whole', reported }],
    ['one with cached tokens', 200, CACHED, false, { end: 'whole', reported: { ...reported, cachedTokens: 2 } }],
    ['a whole stream', 200, `data: ${USAGE}\n\ndata: [DONE]\n\n`, true, { end: 'whole', reported }],
    ['a stream without its end', 200, `data: ${USAGE}\n\n`, true, { end: 'broken' }],
    ['a reply without its usage', 200, '{}', false, { end: 'broken' }],
    ['a stream with its error frame', 200, `data: {}\n\ndata: ${ERROR}\n\n`, true, { end: 'cut', code: 'bad_gateway' }],
    ['a stream with two errors', 200, `data: ${ERROR}\n\ndata: ${ERROR}\n\n`, true, { end: 'broken' }],
    ['a stream with an error and an end', 200, `data: ${ERROR}\n\ndata: [DONE]\n\n`, true, { end: 'broken' }],
    ['an error', 502, ERROR, true, { end: 'refused', code: 'bad_gateway' }],
    ['an error without a code', 502, '<html>', false, { end: 'broken' }],
  ] as const) {
    t.strictSame(endOf(status, text, stream), end, name);
  }
});
