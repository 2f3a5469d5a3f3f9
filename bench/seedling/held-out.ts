#!/usr/bin/env node
/**
 * Writes the decisions kept from training, in the form that bench/decisions reads: names and wordings that no training
 * example has.
 *
 *   node dist/bench/seedling/held-out.js FILE INPUTS [SEED]
 */
import { writeFile } from 'node:fs/promises';
import type { Asked, DecisionExample } from './corpus/example.js';
import { decisionAt } from './mix.js';

/** Of the committed file. */
const SEED = 21;

function line({ topic, input, questions }: DecisionExample): string {
  return JSON.stringify({ topic, input, questions: questions.map(known) });
}

function known({ type, question, answers, meanings, answer }: Asked): object {
  if (type === 'yes_no') {
    const [yes, no] = meanings;
    return {
      type,
      question,
      ...(yes !== undefined && { yes }),
      ...(no !== undefined && { no }),
      expected: answers[answer],
    };
  }
  if (type === 'score') return { type, question, levels: answers, expected: answer };
  const options = answers.map((name, at) => ({
    name,
    ...(meanings[at] !== undefined && { description: meanings[at] }),
  }));
  return { type, question, options, expected: answers[answer] };
}

const [file, inputs, seed = SEED] = process.argv.slice(2);
if (file === undefined || inputs === undefined) throw new Error('usage: held-out FILE INPUTS [SEED]');
const lines = Array.from({ length: Number(inputs) }, (_, at) => line(decisionAt(Number(seed), at, 'held')));
await writeFile(file, `${lines.join('\n')}\n`);
