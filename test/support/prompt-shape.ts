/** What determines a chat’s prompt and job, as one text. */
import { shapeConversation, type Shape } from '../../engine/prompt/conversation.js';
import type { ChatRequest } from '../../sidecar/contracts/requests.js';

/** The form of conversation that most templates accept. */
export const SHAPE: Shape = {
  content: 'string',
  arguments: 'string',
  noContent: null,
  thought: 'reasoning_content',
  noTools: 'absent',
  system: true,
};

/** What a template gets, keys in order, with the job’s parameters. */
export function promptOf({ params, conversation, replySchema, switches }: ChatRequest): string {
  return JSON.stringify([params, shapeConversation(conversation, SHAPE), replySchema, switches]);
}
