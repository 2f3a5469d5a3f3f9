/** Posts and comments: what is wrong with them, if anything. */
import { asking, choice, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { Asked, DecisionExample } from './example.js';
import { filled } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.moderation;

interface Harm {
  readonly names: readonly string[];
  readonly description: string;
  readonly asked: readonly string[];
  /** 0: fine, 1: a little, 2: bad. */
  readonly level: number;
  readonly says: readonly string[];
}

/** One post and questions about it. */
export function post(draw: Draw): DecisionExample {
  const harm = draw.any(wordings.harms);
  const [safe] = wordings.harms;
  const said = [filled(draw, draw.pick(harm.says))];
  if (safe && harm !== safe && draw.chance(0.4)) said.push(filled(draw, draw.pick(safe.says)));
  const questions = [asked(draw, harm), asked(draw, harm), sorted(draw, harm), rated(draw, harm)];
  return {
    kind: 'decision',
    topic: 'moderation',
    input: draw.shuffle(said).join(' '),
    questions: draw.some(questions, asking(draw, 3, 4)),
  };
}

/** A post, and its label among all labels in one order. */
export function sortedPost(draw: Draw): DecisionExample {
  const harm = draw.any(wordings.harms);
  const answers = wordings.harms.map(({ names }) => names[0] ?? '');
  const meanings = answers.map(() => undefined);
  const question: Asked = {
    type: 'choice',
    question: draw.pick(wordings.sort),
    answers,
    meanings,
    answer: wordings.harms.indexOf(harm),
  };
  const input = filled(draw, draw.pick(harm.says));
  return {
    kind: 'decision',
    topic: 'moderation',
    input,
    questions: [question, sorted(draw, harm), asked(draw, harm), asked(draw, harm)],
  };
}

function asked(draw: Draw, harm: Harm): Asked {
  const other = draw.chance(0.5) ? harm : draw.any(wordings.harms.filter((one) => one !== harm));
  return yesNo(draw, draw.pick(other.asked), other === harm, [other.description, 'it does not']);
}

function sorted(draw: Draw, harm: Harm): Asked {
  const option = (one: Harm): { name: string; description: string } => ({
    name: draw.pick(one.names),
    description: one.description,
  });
  return choice(draw, draw.pick(wordings.sort), option(harm), wordings.harms.filter((one) => one !== harm).map(option));
}

function rated(draw: Draw, harm: Harm): Asked {
  return score(draw.pick(wordings.howHarmful), draw.pick(wordings.levels), harm.level);
}
