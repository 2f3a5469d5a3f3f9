import type { Draw } from './draw.js';
import { colors, items, people, place } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.memory;

/** What was said in an earlier turn. */
export function remembered(draw: Draw): {
  readonly first: string;
  readonly said: string;
  readonly ask: string;
  readonly reply: string;
} {
  const [name = ''] = people(draw, 1);
  const [thing = ''] = items(draw, 1);
  const [shade = ''] = colors(draw, 1);
  const where = place(draw);
  return draw.any([
    {
      first: `My name is ${name}.`,
      said: `Nice to meet you, ${name}!`,
      ask: draw.pick(wordings.names),
      reply: `Your name is ${name}.`,
    },
    {
      first: `I live in ${where}.`,
      said: 'Good to know.',
      ask: draw.pick(wordings.homes),
      reply: `You live in ${where}.`,
    },
    {
      first: `I have a ${shade} ${thing}.`,
      said: 'Good to know.',
      ask: draw.pick([
        `What color is my ${thing}?`,
        `Which color does my ${thing} have?`,
        'What do I have?',
        `My ${thing}: which color is it?`,
        `Which color is my ${thing}?`,
      ]),
      reply: `You have a ${shade} ${thing}.`,
    },
  ]);
}
