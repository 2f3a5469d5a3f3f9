/** Names that an error may repeat, since they are the public API's: those of the compatible contract, and more that clients send. */
import { COMPATIBLE_SCHEMA } from './compatible-schema.js';
import { MESSAGES_SCHEMA } from './messages-schema.js';
import { RESPONSES_SCHEMA } from './responses-schema.js';

const OTHERS = [
  ...['reasoning_details', 'citations', 'extra_body', 'thinking_config', 'generation_config', 'safety_settings'],
  ...['system_instruction', 'tool_config', 'safe_prompt', 'random_seed', 'prompt_mode', 'search_parameters'],
  ...['deferred', 'top_n_tokens', 'watermark', 'details', 'return_full_text', 'do_sample', 'num_beams'],
  ...['max_new_tokens', 'max_length', 'best_effort', 'timeout', 'request_id', 'api_key', 'base_url'],
  ...['custom_llm_provider', 'caching', 'speculative', 'adapter', 'lora_request', 'response_prefix', 'raw', 'template'],
  ...['enable_search', 'search_options', 'incremental_output', 'result_format', 'vl_high_resolution_images'],
  ...['translation_options', 'asr_options', 'tool_stream', 'do_meta', 'web_search', 'citations_enabled', 'compaction'],
  ...['billing_policy', 'safeguards', 'context_hint', 'resumption', 'access_programs', 'image', 'allowed_callers'],
  ...['input_audio', 'file', 'file_data', 'file_url', 'filename', 'allowed_tools', 'custom', 'if', 'then', 'else'],
  ...['contains', 'minContains', 'maxContains', 'dependentRequired', 'dependentSchemas', 'dependencies'],
  ...['unevaluatedProperties', 'unevaluatedItems', '$dynamicRef', '$recursiveRef', 'provider_specific_fields'],
  ...['extra_content', 'parsed', 'index'],
];

export const WELL_KNOWN_NAMES: ReadonlySet<string> = new Set([
  ...namesIn(COMPATIBLE_SCHEMA),
  ...namesIn(RESPONSES_SCHEMA),
  ...namesIn(MESSAGES_SCHEMA),
  ...OTHERS,
]);

/** Every name that a schema declares. Depth: that of our own schema. */
function namesIn(schema: unknown): string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  const { properties } = schema as { readonly properties?: object };
  return [...Object.keys(properties ?? {}), ...Object.values(schema).flatMap(namesIn)];
}
