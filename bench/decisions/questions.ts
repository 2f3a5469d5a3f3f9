/**
 * Questions with known answers, one input a line (JSON Lines), in the words of POST /v1/decisions:
 *
 *     {"input": "…", "questions": [
 *       {"type": "yes_no", "question": "…", "yes"?: "…", "no"?: "…", "expected": "yes"},
 *       {"type": "choice", "question": "…", "options": [{"name": "…", "description"?: "…"}, …], "expected": "a name"},
 *       {"type": "score", "question": "…", "levels": ["…", …], "expected": 2}]}
 *
 * `topic`, where a line has one, groups the figures.
 */
import { YES_NO } from '../../engine/prompt/labels.js';
import type { Question } from '../../engine/prompt/decision-prompt.js';

export type KnownQuestion =
  | {
      readonly type: 'yes_no';
      readonly question: string;
      readonly yes?: string;
      readonly no?: string;
      readonly expected: 'yes' | 'no';
    }
  | {
      readonly type: 'choice';
      readonly question: string;
      readonly options: readonly { readonly name: string; readonly description?: string }[];
      readonly expected: string;
    }
  | {
      readonly type: 'score';
      readonly question: string;
      readonly levels: readonly string[];
      readonly expected: number;
    };

export interface KnownCase {
  readonly topic?: string;
  readonly input: string;
  readonly questions: readonly KnownQuestion[];
}

/** A question as the prompt needs it, with the index of its answer. */
export interface Asked {
  readonly question: Question;
  readonly answer: number;
}

/** The file’s lines. Throws, with the line’s number, at one that is no such case. */
export function readCases(text: string): KnownCase[] {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line, at) => {
      const parsed = JSON.parse(line) as KnownCase;
      const questions = parsed.questions as readonly KnownQuestion[] | undefined;
      if (typeof parsed.input !== 'string' || questions === undefined) throw new Error(`line ${at + 1}: no case`);
      if (questions.some((question) => asked(question).answer < 0))
        throw new Error(`line ${at + 1}: the expected answer is none of the answers`);
      return parsed;
    });
}

export function asked(known: KnownQuestion): Asked {
  const { type, question } = known;
  switch (known.type) {
    case 'yes_no':
      return {
        question: { type, question, answers: YES_NO, meanings: [known.yes, known.no] },
        answer: YES_NO.indexOf(known.expected),
      };
    case 'choice': {
      const answers = known.options.map(({ name }) => name);
      const meanings = known.options.map(({ description }) => description);
      return { question: { type, question, answers, meanings }, answer: answers.indexOf(known.expected) };
    }
    case 'score': {
      const answers = known.levels;
      const answer = known.expected in answers ? known.expected : -1;
      return { question: { type, question, answers, meanings: answers.map(() => undefined) }, answer };
    }
  }
}

/** The same question with its answers in reverse order. */
export function reversed({ question, answer }: Asked): Asked {
  const answers = question.answers.toReversed();
  return {
    question: { ...question, answers, meanings: question.meanings.toReversed() },
    answer: answers.length - 1 - answer,
  };
}
