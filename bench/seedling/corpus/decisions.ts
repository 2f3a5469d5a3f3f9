/** The mix of decision examples. */
import type { Draw } from './draw.js';
import type { DecisionExample } from './example.js';
import { persons, record, states } from './facts.js';
import { denial, mentions } from './texts.js';
import { post, sortedPost } from './moderation.js';
import { comparison, count, rule } from './numbers.js';
import { review } from './reviews.js';
import { sortedTicket, ticket } from './tickets.js';

/** Generator and weight. */
const MIX: readonly (readonly [(draw: Draw) => DecisionExample, number])[] = [
  [ticket, 30],
  [post, 11],
  [states, 11],
  [record, 10],
  [persons, 9],
  [mentions, 6],
  [denial, 3],
  [comparison, 10],
  [rule, 3],
  [count, 4],
  [review, 5],
];
const TOTAL = MIX.reduce((sum, [, weight]) => sum + weight, 0);

export function decision(draw: Draw): DecisionExample {
  let at = draw.next() * TOTAL;
  for (const [make, weight] of MIX) {
    at -= weight;
    if (at < 0) return make(draw);
  }
  return ticket(draw);
}

/** Decisions whose answer stands in the input. */
export function finding(draw: Draw): DecisionExample {
  return draw.any([record, persons, states, states, mentions, denial])(draw);
}

/** Choices among all topics in one order. */
export function sorting(draw: Draw): DecisionExample {
  return draw.chance(0.75) ? sortedTicket(draw) : sortedPost(draw);
}

/** Decisions about the tone and the worth of a text. */
export function judging(draw: Draw): DecisionExample {
  return draw.any([review, ticket, post])(draw);
}
