/** Support messages: what the customer wants, who takes it, how angry and how urgent it is. */
import { asking, choice, choiceOf, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { Asked, DecisionExample } from './example.js';
import { filled, people, person } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.tickets;

/** What customers write about: option names that mean the same, the team that takes it, ends of "Does the customer …?", messages. */
type Intent = (typeof INTENTS)[number];
const INTENTS = WORDINGS.intents;
/** Anger from calm to furious, urgency from a message that can wait to one that cannot. */
const LEVELS = [0, 2] as const;

const OPENINGS = ['Hello,', 'Hi,', 'Hi there.', 'Good morning.', 'Hello!', 'Dear team,', 'Hey,', 'Good day.'];

/** One message and several questions about it. */
export function ticket(draw: Draw): DecisionExample {
  const intent = draw.any(INTENTS);
  const anger = draw.chance(0.45) ? undefined : draw.int(...LEVELS);
  const urgency = anger !== undefined || draw.chance(0.5) ? undefined : draw.int(...LEVELS);
  const writer = draw.chance(0.3) ? person(draw) : undefined;
  const parts = [
    ...(draw.chance(0.3) ? [draw.pick(OPENINGS)] : []),
    ...(draw.chance(0.35) ? [filled(draw, draw.pick(wordings.context))] : []),
    filled(draw, draw.pick(intent.says)),
    ...(anger === undefined ? [] : [draw.pick(wordings.anger[anger] ?? [])]),
    ...(urgency === undefined ? [] : [draw.pick(wordings.urgency[urgency] ?? [])]),
    ...(writer === undefined ? [] : [draw.chance(0.5) ? writer : `Best, ${writer}`]),
  ];
  const questions = [asksFor(draw, intent), asksFor(draw, intent), sorted(draw, intent)];
  if (draw.split === 'train') questions.push(sorted(draw, intent));
  if (anger !== undefined) questions.push(aboutAnger(draw, anger));
  if (urgency !== undefined) questions.push(aboutUrgency(draw, urgency));
  if (writer !== undefined) {
    const others = people(draw, 4).filter((name) => name !== writer);
    const asked = draw.pick(wordings.whoWrote);
    questions.push(choiceOf(draw, asked, writer, others, 3));
  }
  return {
    kind: 'decision',
    topic: 'ticket',
    input: parts.join(' '),
    questions: draw.some(questions, asking(draw, 4, 5)),
  };
}

/** A short message, its topic among all topics in one order and among some in any, and what it asks for. */
export function sortedTicket(draw: Draw): DecisionExample {
  const intent = draw.any(INTENTS);
  const input = `${draw.chance(0.2) ? `${filled(draw, draw.pick(wordings.context))} ` : ''}${filled(draw, draw.pick(intent.says))}`;
  const answers = INTENTS.map(({ names }) => names[0] ?? '');
  const meanings = answers.map(() => undefined);
  const answer = INTENTS.indexOf(intent);
  const fixed: Asked = { type: 'choice', question: draw.pick(wordings.about), answers, meanings, answer };
  const asked = Array.from({ length: 4 }, () => asksFor(draw, intent));
  return {
    kind: 'decision',
    topic: 'ticket',
    input,
    questions: [...(draw.chance(0.4) ? [fixed] : []), sorted(draw, intent), sorted(draw, intent), ...asked.slice(1)],
  };
}

function asksFor(draw: Draw, intent: Intent): Asked {
  const asked = draw.chance(0.5) ? intent : draw.any(INTENTS.filter((other) => other !== intent));
  const act = draw.pick(asked.asks);
  const question = draw.pick([
    `Does the customer ${act}?`,
    `Does the writer ${act}?`,
    `Does this person ${act}?`,
    `Does the message ${act}?`,
    `Does the customer ${act} in this message?`,
    `Does the user ${act}?`,
  ]);
  return yesNo(draw, question, asked === intent, [asked.description, 'anything else']);
}

function sorted(draw: Draw, intent: Intent): Asked {
  const byTeam = draw.chance(0.4);
  const option = (one: Intent): { name: string; description: string } => ({
    name: byTeam ? one.team : draw.pick(one.names),
    description: one.description,
  });
  const wrong = INTENTS.filter((other) => other !== intent).map(option);
  return choice(draw, draw.pick(byTeam ? wordings.route : wordings.about), option(intent), wrong);
}

function aboutAnger(draw: Draw, level: number): Asked {
  if (draw.chance(0.4) && level !== 1) {
    const question = draw.pick(wordings.isAngry);
    return yesNo(draw, question, level === 2, ['the writer is angry', 'the writer is calm']);
  }
  const question = draw.pick(wordings.howAngry);
  return score(question, draw.pick(wordings.angerLevels), level);
}

function aboutUrgency(draw: Draw, level: number): Asked {
  if (draw.chance(0.4) && level !== 1) {
    const question = draw.pick(wordings.isUrgent);
    return yesNo(draw, question, level === 2, ['it must be handled at once', 'it can wait']);
  }
  const question = draw.pick(wordings.howUrgent);
  return score(question, draw.pick(wordings.urgencyLevels), level);
}
