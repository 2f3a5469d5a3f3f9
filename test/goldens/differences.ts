/**
 * Where the sidecar renders otherwise than llama-server. The judge is Jinja2 in Python (judge.ts), which renders the variables that
 * the sidecar gives to the template. Where llama.cpp changes the conversation before it renders, the judge cannot show that: then the
 * template's own text decides.
 */

/** Whose prompt Jinja2 renders; `throws`: it renders none. */
export type Verdict = 'sidecar' | 'llama-server' | 'neither' | 'throws';

export interface Difference {
  readonly template: string;
  /** Names of conversations, separated by spaces. */
  readonly conversations: string;
  readonly jinja: Verdict;
  readonly right: 'sidecar' | 'llama-server';
  readonly why: string;
}

/** Names of templates, separated by white space. */
function names(text: string): readonly string[] {
  return text.trim().split(/\s+/);
}

/**
 * Templates that list no tools, or list them under a name that llama.cpp does not use. Every conversation with tools differs: the
 * sidecar's prompt has the tools, llama-server's has not, so that its model cannot know them.
 */
export const UNLISTED: readonly string[] = names(`
  HuggingFaceTB-SmolLM3-3B deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-R1-Distill-Qwen-32B
  deepseek-ai-DeepSeek-V3.1 fireworks-ai-llama-3-firefunction-v2 google-gemma-2-2b-it llama-cpp-rwkv-world
  microsoft-Phi-3.5-mini-instruct
`);

const NUMBERS =
  'The filter `string` writes `1e3` and `1.0` with a decimal point. llama-server does so only without a filter.';
const JSON_NUMBERS =
  'The filter `tojson` writes `1e3` as `1000.0` and `1.0` with a decimal point. llama-server writes `1000` and `1`.';
const STEP = 'llama-server trims the texts of this model, against loops in its thoughts. The template does not.';

const TYPES = 'The template asks whether a list of types is in a list. llama-server refuses the request.';
const NONE = 'A null argument is written as `None`. llama-server writes nothing.';

const SYSTEMS_REFUSED =
  'The template takes one system message. The sidecar joins those at the beginning, llama-server refuses the request.';
const SYSTEMS_DROPPED =
  'The template writes one of two system messages. The sidecar joins those at the beginning, llama-server drops one.';

const LATER_SYSTEM =
  "The template leaves out, moves or refuses a system message behind other messages. The sidecar writes it as text of the user's next message.";
const ALONE =
  "The template refuses or leaves out a system message that is alone. The sidecar writes it as text of a user's message.";
const SWAPPED =
  'The sidecar writes results in the order of their calls. llama-server writes them as they come: each as the result of the other call.';
const WORDS = 'The template leaves out the words beside a call. The sidecar makes a message of them.';
const APART =
  'The template writes one call of a message, or refuses several. The sidecar writes a message for each call, with its result behind it.';
const AS_TEXT = 'The template leaves earlier calls out. The sidecar writes calls and results as text.';
const NO_REPLY =
  "The template refuses a user's message behind a result. The sidecar writes a reply without text between them, llama-server refuses the request.";
const IN_TURN =
  'The template refuses two messages of one role in a row. The sidecar makes one of them, llama-server refuses the request.';
const OWN_IDS =
  "The template writes ids of its own in calls, and the caller's in results. The sidecar gives results the ids of their calls.";
const EFFORT =
  'The template has a name of its own for the effort, which llama-server does not give it: every effort gives one prompt.';
const LEAST_EFFORT =
  'The effort `none` is the lowest that the template has. llama-server gives it no effort, which is a higher one.';

function sidecar(template: string, conversations: string, jinja: Verdict, why: string): Difference {
  return { template, conversations, jinja, right: 'sidecar', why };
}

/** Templates that write the arguments of earlier calls by the filter `tojson`. */
const WRITE_JSON: readonly string[] = names(`
  Apertus-8B-Instruct Apriel-1.6-15b-Thinker-fixed Bielik-11B-v3.0-Instruct Cohere2MoE
  CohereForAI-c4ai-command-r7b-12-2024-tool_use GLM-4.6 GLM-4.7-Flash GigaChat3-10B-A1.8B GigaChat3.1-10B-A1.8B
  Kimi-K3 MiMo-VL MiniMax-M1 MiniMax-M2 Mistral-Small-3.2-24B-Instruct-2506 NVIDIA-Nemotron-Nano-v2
  NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B
  Qwen-Qwen2.5-7B-Instruct Qwen-Qwen3-0.6B Reka-Edge Spark2.5 deepseek-ai-DeepSeek-V3.2 deepseek-ai-DeepSeek-V4
  deepseek-ai-DeepSeek-V4-Flash-0731 ibm-granite-granite-4.0 ibm-granite-granite-4.1 inclusionai-ling-3.0-flash
  meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct
  mistralai-Ministral-3-14B-Reasoning-2512 mistralai-Mistral-Nemo-Instruct-2407 moonshotai-Kimi-K2 openai-gpt-oss-120b
  poolside-Laguna-S-2.1 poolside-Laguna-XS-2.1 poolside-Laguna-XS.2 tencent-Hy3 unsloth-Apriel-1.5
  unsloth-mistral-Devstral-Small-2507 upstage-Solar-Open-100B
`);

export const DIFFERENCES: readonly Difference[] = [
  ...['Kimi-K2-Instruct', 'Kimi-K2-Thinking', 'llama-cpp-deepseek-r1'].map((template) =>
    sidecar(template, 'call-numbers', 'throws', JSON_NUMBERS),
  ),
  sidecar('meetkai-functionary-medium-v3.1', 'call-numbers', 'neither', JSON_NUMBERS),
  ...WRITE_JSON.map((template) => sidecar(template, 'call-numbers', 'sidecar', JSON_NUMBERS)),
  sidecar(
    'Apertus-8B-Instruct',
    'effort-low effort-medium effort-high effort-tools',
    'sidecar',
    'llama.cpp does not detect that the model can think, and never turns thinking on.',
  ),
  sidecar(
    'ByteDance-Seed-OSS',
    'offer-deep call-deep',
    'sidecar',
    'llama-server answers 500 where a property has no type.',
  ),
  sidecar('ByteDance-Seed-OSS', 'call-numbers', 'throws', `${NUMBERS} Jinja2 throws at a tool without parameters.`),
  sidecar(
    'Cohere2MoE',
    'offer-none effort-none',
    'sidecar',
    'llama.cpp does not pass the effort `none` to the template, which turns thinking off by it.',
  ),
  sidecar(
    'CohereForAI-c4ai-command-r-plus-tool_use',
    'offer offer-system offer-deep offer-data offer-turns offer-none offer-json call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-numbers call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call effort-tools',
    'throws',
    'llama-server answers 400 to every tool, since its interpreter throws at a member that is missing. Jinja2 throws at a parameter without a description, of which the sidecar renders an empty one.',
  ),
  sidecar('GigaChat3-10B-A1.8B', 'offer-deep call-deep', 'sidecar', TYPES),
  sidecar('GigaChat3.1-10B-A1.8B', 'offer-deep call-deep', 'sidecar', TYPES),
  sidecar('LFM2.5-8B-A1B', 'call-numbers', 'sidecar', NUMBERS),
  sidecar('NVIDIA-Nemotron-3-Nano-30B-A3B-BF16', 'call-numbers', 'sidecar', NUMBERS),
  {
    template: 'Qwen-QwQ-32B',
    conversations: 'thought-content-call',
    jinja: 'sidecar',
    right: 'llama-server',
    why: "The template leaves a line end between an earlier thought within the content and the call. The sidecar takes the thought out before it renders, since marks in callers' text are cut.",
  },
  sidecar('Qwen3-Coder', 'call-numbers', 'sidecar', NUMBERS),
  sidecar('Qwen3.5-4B', 'call-numbers', 'sidecar', NUMBERS),
  sidecar('StepFun3.5-Flash', 'turns long edges', 'sidecar', STEP),
  sidecar('StepFun3.5-Flash', 'call-numbers', 'sidecar', NUMBERS),
  sidecar(
    'google-gemma-2-2b-it',
    'system-alone',
    'sidecar',
    'llama-server drops a system message that is alone, so that the model has nothing to answer.',
  ),
  sidecar('google-gemma-4-31B-it-interleaved', 'call-deep', 'sidecar', NONE),
  sidecar('google-gemma-4-31B-it', 'call-deep', 'sidecar', NONE),
  sidecar(
    'meetkai-functionary-medium-v3.2',
    'offer-deep call-deep',
    'sidecar',
    'A null in a schema is written as `None`. llama-server writes nothing.',
  ),
  sidecar(
    'openbmb-MiniCPM5-1B',
    'calls calls-open calls-swapped calls-in-turn call-deep',
    'sidecar',
    'The template prints a list, an object or a null. llama.cpp prints nothing between their items, or nothing at all.',
  ),
  sidecar(
    'tencent-Hy3',
    'effort-medium',
    'sidecar',
    'The template throws at this effort. The sidecar gives it the next one above, llama-server answers 500.',
  ),
  sidecar(
    'ByteDance-Seed-OSS',
    'effort-low effort-medium effort-high effort-none effort-tools offer-none',
    'sidecar',
    EFFORT,
  ),
  sidecar('Kimi-K3', 'effort-low effort-medium effort-high effort-none effort-tools offer-none', 'sidecar', EFFORT),
  sidecar('MiniMax-M3', 'effort-medium effort-high effort-none effort-tools offer-none', 'sidecar', EFFORT),
  sidecar('ibm-granite-granite-3.3-2B-Instruct', 'effort-low effort-medium', 'sidecar', EFFORT),
  ...['muse-glimmer', 'openai-gpt-oss-120b', 'upstage-Solar-Open-100B'].map((template) =>
    sidecar(template, 'effort-none offer-none', 'sidecar', LEAST_EFFORT),
  ),
  sidecar(
    'unsloth-mistral-Devstral-Small-2507',
    'thought-turns thought-calls',
    'sidecar',
    'llama.cpp drops the reply that a thought belongs to.',
  ),
  ...names(`
    Apertus-8B-Instruct Mistral-Small-3.2-24B-Instruct-2506 Qwen3.5-4B google-gemma-2-2b-it
    mistralai-Ministral-3-14B-Reasoning-2512 mistralai-Mistral-Nemo-Instruct-2407
  `).map((template) => sidecar(template, 'two-systems', 'sidecar', SYSTEMS_REFUSED)),
  ...names(`
    Bielik-11B-v3.0-Instruct HuggingFaceTB-SmolLM3-3B MiniMax-M1 MiniMax-M2 MiniMax-M3 NVIDIA-Nemotron-Nano-v2
    Reka-Edge deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-R1-Distill-Qwen-32B llama-cpp-deepseek-r1
    llama-cpp-rwkv-world openai-gpt-oss-120b
  `).map((template) => sidecar(template, 'two-systems', 'sidecar', SYSTEMS_DROPPED)),
  ...names(`
    Apertus-8B-Instruct Apriel-1.6-15b-Thinker-fixed Bielik-11B-v3.0-Instruct ByteDance-Seed-OSS Cohere2MoE
    CohereForAI-c4ai-command-r7b-12-2024-tool_use GLM-4.6 GLM-4.7-Flash Kimi-K2-Instruct Kimi-K2-Thinking
    LFM2.5-8B-A1B MiMo-VL MiniMax-M1 MiniMax-M2 MiniMax-M3 Mistral-Small-3.2-24B-Instruct-2506
    NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 NVIDIA-Nemotron-Nano-v2 NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use
    NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct Qwen-Qwen3-0.6B Qwen3-Coder
    Qwen3.5-4B Reka-Edge Spark2.5 StepFun3.5-Flash deepseek-ai-DeepSeek-V3.2 google-gemma-4-31B-it
    google-gemma-4-31B-it-interleaved ibm-granite-granite-4.0 ibm-granite-granite-4.1 inclusionai-ling-3.0-flash
    llama-cpp-deepseek-r1 meetkai-functionary-medium-v3.1 meetkai-functionary-medium-v3.2
    mistralai-Ministral-3-14B-Reasoning-2512 mistralai-Mistral-Nemo-Instruct-2407 muse-glimmer poolside-Laguna-S-2.1
    poolside-Laguna-XS-2.1 poolside-Laguna-XS.2 tencent-Hy3 unsloth-Apriel-1.5 unsloth-mistral-Devstral-Small-2507
    upstage-Solar-Open-100B
  `).map((template) => sidecar(template, 'calls-swapped', 'sidecar', SWAPPED)),
  ...names(`
    Cohere2MoE CohereForAI-c4ai-command-r7b-12-2024-tool_use MiniMax-M1 NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use
    NousResearch-Hermes-3-Llama-3.1-8B-tool_use google-gemma-4-31B-it-interleaved llama-cpp-deepseek-r1 muse-glimmer
    upstage-Solar-Open-100B Mistral-Small-3.2-24B-Instruct-2506 mistralai-Mistral-Nemo-Instruct-2407
  `).map((template) => sidecar(template, 'calls thought-content-call', 'sidecar', WORDS)),
  ...['GigaChat3-10B-A1.8B', 'GigaChat3.1-10B-A1.8B'].map((template) =>
    sidecar(template, 'calls calls-open calls-swapped', 'sidecar', APART),
  ),
  ...names(`
    meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct
    openai-gpt-oss-120b
  `).flatMap((template) => [
    sidecar(template, 'calls calls-open calls-swapped', 'sidecar', APART),
    sidecar(template, 'thought-content-call', 'sidecar', WORDS),
  ]),
  ...['LFM2-8B-A1B', 'LFM2.5-Instruct', 'ibm-granite-granite-3.3-2B-Instruct'].map((template) =>
    sidecar(
      template,
      'call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-numbers call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call',
      'sidecar',
      AS_TEXT,
    ),
  ),
  ...names(`
    Mistral-Small-3.2-24B-Instruct-2506 mistralai-Ministral-3-14B-Reasoning-2512 mistralai-Mistral-Nemo-Instruct-2407
  `).map((template) => sidecar(template, 'loop-user', 'sidecar', NO_REPLY)),
  ...names(`
    Mistral-Small-3.2-24B-Instruct-2506 google-gemma-2-2b-it mistralai-Ministral-3-14B-Reasoning-2512
    mistralai-Mistral-Nemo-Instruct-2407
  `).map((template) => sidecar(template, 'two-users two-assistants', 'sidecar', IN_TURN)),
  sidecar(
    'moonshotai-Kimi-K2',
    'call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call',
    'sidecar',
    OWN_IDS,
  ),
  ...names(`
    Apertus-8B-Instruct Bielik-11B-v3.0-Instruct HuggingFaceTB-SmolLM3-3B MiniMax-M1 MiniMax-M2 MiniMax-M3
    Mistral-Small-3.2-24B-Instruct-2506 NVIDIA-Nemotron-Nano-v2 Qwen3.5-4B Reka-Edge
    deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-R1-Distill-Qwen-32B deepseek-ai-DeepSeek-V3.1
    deepseek-ai-DeepSeek-V3.2 deepseek-ai-DeepSeek-V4-Flash-0731 deepseek-ai-DeepSeek-V4 google-gemma-2-2b-it
    llama-cpp-deepseek-r1 llama-cpp-rwkv-world mistralai-Ministral-3-14B-Reasoning-2512
    mistralai-Mistral-Nemo-Instruct-2407 openai-gpt-oss-120b tencent-Hy3 upstage-Solar-Open-100B
  `).map((template) => sidecar(template, 'system-middle', 'sidecar', LATER_SYSTEM)),
  ...['Qwen3.5-4B', 'mistralai-Mistral-Nemo-Instruct-2407'].map((template) =>
    sidecar(template, 'system-alone', 'sidecar', ALONE),
  ),
];

/** Each template and conversation of {@link DIFFERENCES}, as `TEMPLATE CONVERSATION`. `verdict`: of that alone. */
export function differentPairs(verdict?: Verdict): string[] {
  return DIFFERENCES.filter(({ jinja }) => verdict === undefined || jinja === verdict).flatMap(
    ({ template, conversations }) => conversations.split(' ').map((conversation) => `${template} ${conversation}`),
  );
}
