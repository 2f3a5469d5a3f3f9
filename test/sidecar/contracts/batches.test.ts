import t from 'tap';
import { parseBatchLine } from '../../../sidecar/contracts/batches.js';

const line = (body: string, more = ''): Uint8Array =>
  Buffer.from(`{"custom_id": "a", "method": "POST",${more} "body":${body} , "url": "/v1/chat/completions"}`);

/** The body and the model of a line, or the place of its problem. */
function parsed(bytes: Uint8Array): readonly string[] {
  const read = parseBatchLine(bytes);
  if (read.kind === 'invalid') return [read.error.param ?? 'the line'];
  return [Buffer.from(read.request.body).toString().trim(), read.request.model];
}

t.test('the body is as it is in the line, whatever is in it', async (t) => {
  for (const [body, model] of [
    ['{"model": "m", "messages": [{"content": "a, b: {\\"}"}]}', 'm'],
    ['{"messages": [{"model": "inner"}], "model": "m\\u0065"}', 'me'],
    ['{"text": "\\\\", "model": "é"}', 'é'],
    ['{"model": ["m"]}', ''],
    ['{}', ''],
    ['{"nested": {"body": {"model": "no"}}}', ''],
  ] as const)
    t.same(parsed(line(body)), [body, model]);
  t.same(parsed(Buffer.from(Buffer.from(line('{"a":1}')).toString().replace('body', 'b\\u006fdy'))), ['{"a":1}', '']);
});

t.test('what is beside the body is checked', async (t) => {
  for (const [bytes, param] of [
    [line('{}', '"extra": 1,'), 'the line'],
    [line('{}', '"body": {},'), 'the line'],
    [line('{}', '"method": "PUT",'), 'the line'],
    [line('{"a": "'), 'the line'],
    [line('{"a": 1'), 'the line'],
    [line('{"a": 1}}'), 'the line'],
    [Buffer.from('{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}'), 'body'],
    [Buffer.from('{"custom_id": 1, "method": "POST", "body": {}, "url": "/v1/chat/completions"}'), 'custom_id'],
    [Buffer.from('"body":{}'), 'the line'],
    [Buffer.from('[{"body":{}}]'), 'the line'],
    [Buffer.from(''), 'the line'],
    [Buffer.from('{"body'), 'the line'],
    [Buffer.from('{"body":'), 'the line'],
    [Buffer.of(0xff), 'the line'],
  ] as const)
    t.same(parsed(bytes), [param], Buffer.from(bytes).toString());
});
