/**
 * Where we render otherwise than llama-server, who is right, and why. The judge is Jinja2 in Python, with the template's own
 * variables; where llama.cpp rewrites the conversation before it renders, the template's words are.
 */

const INSTRUCTION =
  "Neither: the format of its calls is not known here, so the prompt has our JSON instruction. llama-server's is the template's own.";
const APERTUS = 'Ours: llama.cpp does not know that it can think, and never turns it on.';
const SEED = 'Ours, as in Jinja2: llama-server answers 500 where a property has no type.';
const COHERE = 'Ours: llama.cpp keeps the effort `none` from the template, which turns thinking off by it.';
const LFM =
  'llama-server, as in Jinja2: the thought is written back without the white space around it. Marks in callers\u2019 text are cut, so a thought left in content would not be one.';
const STEP = 'llama-server trims the texts of this model, against loops in its thoughts; the template does not.';
const R1_EMPTY = 'llama-server, as in Jinja2: empty content is none to us.';
const GEMMA2 = 'Ours: llama-server leaves a system message alone out, and the model has nothing to answer.';
const GEMMA4 =
  'llama-server: it gives this older template tool results as a member of the call, which its own words do not ask for.';
const NUMBERS =
  'llama-server, as in Jinja2: 1e3 and 1.0 are floats there. In JavaScript they are integers, written without a point.';
const TURN = 'llama-server begins another turn of the model behind an empty text beside a call; the template does not.';
const MINISTRAL = 'Jinja2 throws too: this template has no empty replies. llama-server leaves the reply out. 422.';
const MINICPM =
  'Ours, as in Jinja2: the template prints a list or an object; llama.cpp prints nothing between its items, or nothing at all.';
const HY3 = 'Ours: the template throws at this effort, and is rendered without it; llama-server answers 500.';
const DEVSTRAL = 'Ours: llama.cpp loses the reply that a thought goes with.';
const LINES =
  'llama-server, as in Jinja2, keeps a line end between a thought that is left out and the call or the end behind it.';

/**
 * Templates that list no tools, or only under a name that llama.cpp does not give them. Of these every conversation with tools
 * differs: ours has the tools in the prompt, llama-server's has not, so that its model does not know of them.
 */
export const UNLISTED: readonly string[] = [
  'HuggingFaceTB-SmolLM3-3B',
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B',
  'deepseek-ai-DeepSeek-R1-Distill-Qwen-32B',
  'deepseek-ai-DeepSeek-V3.1',
  'fireworks-ai-llama-3-firefunction-v2',
  'google-gemma-2-2b-it',
  'llama-cpp-rwkv-world',
  'microsoft-Phi-3.5-mini-instruct',
];

/** Template, conversations, and why. */
export const UNEQUAL: readonly (readonly [template: string, conversations: string, why: string])[] = [
  ['Apertus-8B-Instruct', 'effort-low effort-medium effort-high effort-tools', APERTUS],
  ['ByteDance-Seed-OSS', 'offer-deep call-deep', SEED],
  ['Cohere2MoE', 'offer-none effort-none', COHERE],
  [
    'CohereForAI-c4ai-command-r-plus-tool_use',
    'offer offer-system offer-deep offer-data offer-turns offer-none offer-json call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-numbers call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call effort-tools',
    INSTRUCTION,
  ],
  ['LFM2.5-8B-A1B', 'thought-content thought-content-call', LFM],
  [
    'MiniMax-M3',
    'offer offer-system offer-deep offer-data offer-turns offer-none offer-json call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-numbers call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call effort-tools',
    INSTRUCTION,
  ],
  ['NVIDIA-Nemotron-3-Nano-30B-A3B-BF16', 'thought-content', LINES],
  ['Qwen-QwQ-32B', 'thought-content-call', LINES],
  ['StepFun3.5-Flash', 'turns long edges', STEP],
  ['deepseek-ai-DeepSeek-R1-Distill-Llama-8B', 'empty', R1_EMPTY],
  ['google-gemma-2-2b-it', 'system-alone', GEMMA2],
  [
    'google-gemma-4-31B-it-interleaved',
    'call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-numbers call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call',
    GEMMA4,
  ],
  ['google-gemma-4-31B-it', 'call-numbers', NUMBERS],
  ['google-gemma-4-31B-it', 'thought-content-call', TURN],
  [
    'meetkai-functionary-medium-v3.2',
    'offer offer-system offer-deep offer-data offer-turns offer-none offer-json call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-numbers call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call effort-tools',
    INSTRUCTION,
  ],
  ['mistralai-Ministral-3-14B-Reasoning-2512', 'empty', MINISTRAL],
  ['muse-glimmer', 'call-numbers', NUMBERS],
  ['openbmb-MiniCPM5-1B', 'calls calls-open calls-swapped calls-in-turn call-deep', MINICPM],
  ['openbmb-MiniCPM5-1B', 'call-numbers', NUMBERS],
  ['tencent-Hy3', 'effort-medium', HY3],
  ['unsloth-mistral-Devstral-Small-2507', 'thought-turns thought-calls', DEVSTRAL],
];
