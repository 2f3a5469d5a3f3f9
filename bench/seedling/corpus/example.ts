/** What the generators make: structured, so that the server's own code renders it. */
import type { Effort } from '../../../engine/prompt/effort.js';
import type { PromptConversation } from '../../../engine/prompt/conversation.js';
import type { Question } from '../../../engine/prompt/decision-prompt.js';

/** A question whose answer is known. */
export interface Asked extends Question {
  /** Index of the right answer. */
  readonly answer: number;
}

export interface DecisionExample {
  readonly kind: 'decision';
  /** The generator's name. */
  readonly topic: string;
  readonly input: string;
  readonly questions: readonly Asked[];
}

export interface ChatExample {
  readonly kind: 'chat';
  readonly topic: string;
  readonly conversation: PromptConversation;
  readonly reasoningEffort?: Effort;
  readonly jsonObject?: boolean;
  /** The text behind the prompt, up to the end of the turn, which is not written out. */
  readonly reply: string;
}

export type Example = DecisionExample | ChatExample;
