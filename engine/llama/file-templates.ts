import type { GgufMetadata } from 'node-llama-cpp';

/** The chat templates that a file brings. */
export interface FileTemplates {
  /** `tokenizer.chat_template`. */
  readonly chatTemplate: string | undefined;
  /** `tokenizer.chat_template.tool_use`, for conversations that offer tools: of Hermes and Command R models, for example. */
  readonly toolTemplate: string | undefined;
}

/** Reads them. */
export function fileTemplates({ tokenizer }: Pick<GgufMetadata, 'tokenizer'>): FileTemplates {
  const { chat_template: chatTemplate } = tokenizer;
  // The keys are nested by their dots, but not under a key that has a value of its own.
  const { 'chat_template.tool_use': toolTemplate } = tokenizer as { readonly 'chat_template.tool_use'?: unknown };
  return { chatTemplate, toolTemplate: typeof toolTemplate === 'string' ? toolTemplate : undefined };
}
