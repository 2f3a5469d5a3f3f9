/**
 * The chat template of the tests’ vocabulary (chat-template.jinja): ChatML turns, tools in the Hermes format (a JSON list in the system turn,
 * calls as JSON in `<tool_call>`, results in `<tool_response>` within a user turn), thoughts in `<think>`. Thoughts of
 * earlier turns are left out, as by the models with this format; `enable_thinking` false closes the thought before the
 * reply, and an effort opens it, since random weights would not.
 */
import { readFileSync } from 'node:fs';

export const CHAT_TEMPLATE = readFileSync(
  new URL('../../../bench/models/chat-template.jinja', import.meta.url),
  'utf8',
);
