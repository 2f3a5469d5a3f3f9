/**
 * The chat template of the tests’ vocabulary: ChatML turns, tools in the Hermes format (a JSON list in the system turn,
 * calls as JSON in `<tool_call>`, results in `<tool_response>` within a user turn), thoughts in `<think>`. Thoughts of
 * earlier turns are left out, as by the models with this format; `enable_thinking` false closes the thought before the
 * reply, and an effort opens it, since random weights would not.
 */
export const CHAT_TEMPLATE = `{%- set tools = tools if tools is defined and tools else [] -%}
{%- set state = namespace(question=-1) -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{%- set state.question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}
{%- if system or tools -%}
  {{- '<|im_start|>system\\n' + system -}}
  {%- if tools -%}
    {{- ('\\n\\n' if system else '') + 'You may call these tools:\\n<tools>' -}}
    {%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
    {{- '\\n</tools>\\nTo call a tool, reply with\\n<tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call>' -}}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content else '' -%}
  {%- if message.role == 'tool' -%}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
    {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' -}}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
  {%- elif message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if message.reasoning_content and loop.index0 > state.question -%}
      {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}
    {%- endif -%}
    {{- content -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set call = call.function if call.function else call -%}
      {{- ('\\n' if content or not loop.first else '') + '<tool_call>\\n{"name": ' + (call.name | tojson) + ', "arguments": ' -}}
      {{- (call.arguments if call.arguments is string else call.arguments | tojson) + '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'user' or not loop.first -%}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
  {%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}
  {%- elif reasoning_effort is defined -%}{{- '<think>\\n' -}}{%- endif -%}
{%- endif -%}
`;
