/**
 * Names of fields and keywords that an error may repeat, because they are the public API's and not the caller's: all that the
 * compatible contract knows, and more of what clients are known to send.
 */
import { COMPATIBLE_SCHEMA } from './compatible-schema.js';
import { MESSAGES_SCHEMA } from './messages-schema.js';
import { RESPONSES_SCHEMA } from './responses-schema.js';

const OTHERS = [
  ...['best_of', 'echo', 'suffix', 'prompt', 'input', 'instructions', 'thinking', 'reasoning_details', 'include'],
  ...['cache_control', 'citations', 'provider', 'plugins', 'route', 'transforms', 'models', 'extra_body', 'usage'],
  ...['repetition_penalty', 'min_tokens', 'ignore_eos', 'top_a', 'typical_p', 'mirostat', 'grammar', 'json_schema'],
  ...['guided_json', 'guided_regex', 'guided_choice', 'guided_grammar', 'structured_outputs', 'num_ctx', 'keep_alive'],
  ...['thinking_config', 'generation_config', 'safety_settings', 'system_instruction', 'tool_config', 'safe_prompt'],
  ...['random_seed', 'prompt_mode', 'search_parameters', 'deferred', 'stop_sequences', 'system', 'top_n_tokens'],
  ...['watermark', 'details', 'return_full_text', 'do_sample', 'num_beams', 'max_new_tokens', 'max_length', 'seed'],
  ...['best_effort', 'timeout', 'request_id', 'api_key', 'base_url', 'custom_llm_provider', 'fallbacks', 'caching'],
  ...['speculative', 'adapter', 'lora_request', 'response_prefix', 'raw', 'template', 'format', 'options', 'images'],
  ...['enable_search', 'search_options', 'incremental_output', 'result_format', 'vl_high_resolution_images'],
  ...['translation_options', 'asr_options', 'tool_stream', 'do_meta', 'web_search', 'citations_enabled', 'mcp_servers'],
  ...['container', 'betas', 'output_config', 'output_format', 'inference_geo', 'speed', 'thread', 'diagnostics'],
  ...['access_programs', 'image', 'output_schema', 'defer_loading', 'allowed_callers', 'caller', 'namespace', 'mode'],
  ...['input_audio', 'file', 'file_id', 'file_data', 'file_url', 'filename', 'context'],
  ...['allowed_tools', 'custom', 'previous_response_id', 'conversation', 'max_output_tokens', 'text', 'truncation'],
  ...['not', 'if', 'then', 'else', 'contains', 'minContains', 'maxContains', 'dependentRequired', 'dependentSchemas'],
  ...['dependencies', 'unevaluatedProperties', 'unevaluatedItems', '$anchor', '$dynamicRef', '$dynamicAnchor', 'id'],
  ...['provider_specific_fields', 'extra_content', 'parsed', 'index'],
  ...['contentSchema', 'discriminator', 'xml', 'externalDocs', 'propertyOrdering', 'optional', 'outputSchema'],
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
