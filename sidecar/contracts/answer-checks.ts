/** Checks of answers against their schemas, for the switch `development.validateAnswers` and for tests. */
import { ANSWER_SCHEMAS, type AnswerKind } from './answer-schemas.js';
import { type Check, type Outcome, compile } from './validator.js';

const checks = new Map<AnswerKind, Check<unknown>>();

/** Reads what {@link validateAnswer} needs, so that it opens no file while a request is answered. */
export function prepareAnswers(): void {
  for (const kind of Object.keys(ANSWER_SCHEMAS) as AnswerKind[]) checkOf(kind);
}

/** Checks a parsed answer against its schema, compiled on first use: a sidecar that does not check never pays. */
export function validateAnswer(kind: AnswerKind, value: unknown): Outcome<unknown> {
  return checkOf(kind)(value);
}

function checkOf(kind: AnswerKind): Check<unknown> {
  let check = checks.get(kind);
  if (check === undefined) checks.set(kind, (check = compile(ANSWER_SCHEMAS[kind], { later: true })));
  return check;
}
