import { MAX_ARGUMENT_NESTING, MAX_ARGUMENT_VALUES } from '../../engine/prompt/call-arguments.js';
import { chatPrompt, type ChatPrompt } from '../../engine/prompt/chat-prompt.js';
import { DECISION_PROMPT_TOKENS, type DecisionTokens } from '../../engine/prompt/decision-prompt.js';
import type { CompiledConstraint } from '../../engine/prompt/reply-constraint.js';
import { parseBody } from '../contracts/parse.js';
import { refuse } from '../contracts/refusal.js';
import type { BodyForm, ChatRequest, DecisionRequest } from '../contracts/requests.js';
import { overContextError } from '../domain/errors.js';
import { readImages } from './images.js';
import type { LoadedModel } from './models.js';
import type { Answer } from './messages.js';
import type { Checked, Refusal } from './prompt-maker.js';
import { failed, refusal, refused, unservable } from './refusals.js';

/** Checks a body: the first of its two steps. */
export function check(form: BodyForm, bytes: Uint8Array): Checked {
  const parsed = parseBody(form, bytes);
  return parsed.kind === 'invalid' ? refused(parsed.error) : { kind: 'checked', params: parsed.request.params };
}

/**
 * Makes the prompt of a body: the second step. It parses the bytes again, since the sidecar did the first step itself, or a host that may
 * have ended.
 * `compiled`: the grammars of its tools and schemas, if compiling them takes more work than this thread does.
 */
export function tokenize(
  models: ReadonlyMap<string, LoadedModel>,
  form: BodyForm,
  bytes: Uint8Array,
  compiled?: CompiledConstraint,
): Answer {
  const parsed = parseBody(form, bytes);
  if (parsed.kind === 'invalid') return refused(parsed.error);
  const { request } = parsed;
  const model = models.get(request.params.model);
  if (isDecision(request)) return model?.kind === 'decision' ? decide(model, request) : failed('no model');
  return model?.kind === 'chat' ? chat(model, request, form, compiled) : failed('no model');
}

function isDecision(request: ChatRequest | DecisionRequest): request is DecisionRequest {
  return request.params.route !== 'chat';
}

function chat(
  model: LoadedModel & { kind: 'chat' },
  request: ChatRequest,
  form: BodyForm,
  compiled: CompiledConstraint | undefined,
): Answer {
  const { params, conversation, replySchema, switches } = request;
  const limit = model.model.contextPerSeat;
  const bounds = params.firstImage === undefined ? undefined : model.model.images;
  // POST /v1/responses has other names for its parts.
  const place = form === 'responses' ? (): string => 'input' : undefined;
  const read = bounds && readImages(conversation.messages, bounds, place);
  if (read?.kind === 'refused') return read;
  const made = chatPrompt(
    model.parts,
    conversation,
    {
      addGenerationPrompt: true,
      ...(params.reasoningEffort === undefined ? {} : { reasoningEffort: params.reasoningEffort }),
      ...(params.calls && { calls: params.calls }),
      jsonObject: params.jsonObject,
      ...(replySchema && { replySchema }),
      ...(switches && { switches }),
    },
    limit,
    compiled ?? 'quick',
  );
  if (made.kind === 'needs-compiler') return made;
  if (made.kind === 'prompt') {
    const { prompt, format } = made;
    if (model.model.wholeGrammars && format?.calls?.gbnf !== undefined) return CALLS_UNENFORCEABLE;
    const { promptVersion } = model.report;
    const more = { ...(promptVersion !== undefined && { promptVersion }), ...(format && { format }) };
    return { kind: 'chat', prompt, ...more, ...(read && { images: read.images }) };
  }
  if (made.kind === 'failed') return cannotRender(made, request);
  if (made.kind === 'unservable') return unservable(made, form, request);
  return refused(overContextError(limit, { prompt: `at least ${made.atLeast}` }, 'messages'));
}

/** Without a grammar a call could be anything. */
const CALLS_UNENFORCEABLE = refusal(
  'unprocessable',
  "This model's server cannot constrain a call that the model may or may not make: set tool_choice to required, to a function, or to none.",
  'tool_choice',
);

function cannotRender({ why, says, at }: ChatPrompt & { kind: 'failed' }, { places }: ChatRequest): Refusal {
  const message = at && (places?.[at.message]?.at ?? `messages[${at.message}]`);
  const ofCall =
    at?.call === undefined
      ? undefined
      : `${places ? (places[at.message]?.calls[at.call] ?? 'input') : `${message}.tool_calls[${at.call}].function`}.arguments`;
  switch (why) {
    case 'tools':
      return refusal('unprocessable', 'This model is served without tools.', 'tools');
    case 'arguments':
      return refusal(
        'unprocessable',
        "This model's chat template needs the arguments of tool calls to be JSON, and some are not.",
        ofCall ?? 'messages',
      );
    case 'argument-values':
      return refusal(
        'unprocessable',
        `The arguments of tool calls nest deeper than ${MAX_ARGUMENT_NESTING} levels, or have more than ` +
          `${MAX_ARGUMENT_VALUES} values in all.`,
        ofCall ?? 'messages',
      );
    case 'unpaired-result': {
      const { error } = refuse(`${message}.${places ? 'call_id' : 'tool_call_id'}`, OF_A_CALL);
      return refused(error);
    }
    case 'reply-last':
      return refusal(
        'unprocessable',
        "This model's chat template begins no turn of the assistant after its own message: end the conversation with a message of the " +
          "user or with a call's result.",
        message ?? 'messages',
      );
    case 'conversation':
      return refusal(
        'unprocessable',
        `This model's chat template cannot express this conversation${says === undefined ? '' : `: ${says.replace(/[.!]+$/, '')}`}.`,
        message ?? 'messages',
      );
  }
}

const OF_A_CALL =
  'must be the id of a call that the assistant made before, in the same turn, and that has no other result';

function decide(model: LoadedModel & { kind: 'decision' }, request: DecisionRequest): Answer {
  const questions = request.params.questions.map(({ type, answers }, at) => ({
    type,
    answers,
    question: request.questions[at]?.question ?? '',
    meanings: request.questions[at]?.meanings ?? [],
  }));
  const made = model.prompt.tokenize(request.input, questions);
  const { promptVersion } = model.report;
  const { kind } = made;
  if (kind === 'tokens') {
    const { input, questions } = made;
    return { kind: 'decision', input, questions, ...(promptVersion !== undefined && { promptVersion }) };
  }
  return tooLong(made, request.params.route);
}

function tooLong(made: DecisionTokens & { kind: 'too-long' }, route: 'decisions' | 'systemone'): Refusal {
  const count = made.exact ? `${made.tokens}` : `at least ${made.tokens}`;
  // The names of systemone's questions are the caller's text, so its path ends before the name.
  const param = route === 'decisions' ? `questions[${made.question}]` : 'questions';
  return refusal(
    'bad_request',
    `The prompt of question ${made.question} (input, question and template) has ${count} tokens; ` +
      `at most ${DECISION_PROMPT_TOKENS} are allowed.`,
    param,
  );
}
