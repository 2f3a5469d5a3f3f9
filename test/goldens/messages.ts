/** Messages that the goldens' conversations share. */

export const SYSTEM = { role: 'system', content: 'Be brief. "Never" say <b>no</b>.' };
export const USER = { role: 'user', content: 'Is it raining in Zürich?' };
export const ASSISTANT = { role: 'assistant', content: 'Yes.' };
/** A thought within the content, as a client returns it that does not separate the two. */
export const THOUGHT = { role: 'assistant', content: '<think>\nClouds.\n</think>\n\nYes.' };

export function callOf(id: string, name: string, text: string) {
  return { id, type: 'function', function: { name, arguments: text } };
}

/** Ids have nine letters and digits, which Mistral's templates require. */
export const CALL = callOf('call00001', 'get_weather', '{"city":"Zürich","days":2,"unit":"celsius"}');
export const NOTE = callOf('call00002', 'send_note', '{"to":["Ann","Bob"],"text":"Rain & \\"wind\\"\\nsoon"}');
export const RESULT = {
  role: 'tool',
  tool_call_id: CALL.id,
  name: 'get_weather',
  content: '{"rain": true, "wind": 3.5}',
};
export const SENT = { role: 'tool', tool_call_id: NOTE.id, name: 'send_note', content: 'sent' };
