/** Support messages: what the customer wants, who takes it, how angry and how urgent it is. */
import { asking, choice, choiceOf, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { Asked, DecisionExample } from './example.js';
import type { Intent } from './intent.js';
import { INTENTS } from './intents.js';
import { filled, people, person } from './names.js';

const OPENINGS = ['Hello,', 'Hi,', 'Hi there.', 'Good morning.', 'Hello!', 'Dear team,', 'Hey,', 'Good day.'];
const CONTEXT = [
  'I bought a {item} {days} days ago.',
  'I am a customer from {place}.',
  'My order number is {order}.',
  'This is about order {order}.',
  'I bought a {item} in {place}.',
  'I have been a customer for {days} years.',
  '{name} told me to write to you.',
  'I ordered a {color} {item} last week.',
  'I am writing from {place}.',
  'We ordered a {color} {item}.',
];

/** Level 0: calm, 1: annoyed, 2: furious. */
const ANGER: readonly (readonly string[])[] = [
  [
    'No hurry, and have a nice day.',
    'Thanks in advance!',
    'Kind regards.',
    'Thank you for your help.',
    'Thank you and have a nice day.',
    'Have a nice weekend.',
  ],
  [
    'This is a bit annoying.',
    'I am not happy about this.',
    'I expected better from you.',
    'I am somewhat disappointed.',
    'I am a bit disappointed.',
    'This should not happen.',
    'I am getting impatient.',
    'It is the second time, which is annoying.',
  ],
  [
    'This is an outrage!',
    'I am furious!',
    'You are the worst company ever!',
    'I have had enough of your terrible service!',
    'I am so angry! This is terrible!',
    'This is a disgrace and I am furious!',
    'Never again! Terrible!',
    'I am extremely angry with you!',
  ],
];
const ANGER_LEVELS = [
  ['calm', 'annoyed', 'furious'],
  ['friendly or neutral', 'unhappy', 'very angry'],
  ['not angry', 'a little angry', 'very angry'],
  ['calm', 'irritated', 'raging'],
  ['not angry', 'annoyed', 'furious'],
];

/** Level 0: can wait, 1: soon, 2: at once. */
const URGENCY: readonly (readonly string[])[] = [
  [
    'There is no hurry.',
    'Take your time.',
    'It can wait until next month.',
    'Whenever you have time.',
    'It can wait, take your time.',
    'This is not urgent.',
  ],
  [
    'Please answer this week.',
    'I need an answer by Friday.',
    'A reply in the next days would be good.',
    'I need this by the end of the week.',
    'Please reply by Friday.',
    'I need this within a few days.',
  ],
  [
    'This is urgent!',
    'I need help right now.',
    'It is an emergency!',
    'Please answer at once.',
    'I need help at once, this is urgent!',
    'I need it today, immediately!',
  ],
];
const URGENCY_LEVELS = [
  ['can wait', 'this week', 'right now'],
  ['not urgent', 'somewhat urgent', 'very urgent'],
  ['no hurry', 'soon', 'immediately'],
  ['low', 'medium', 'high'],
  ['can wait', 'soon', 'at once'],
];

const ABOUT = [
  'What is the message about?',
  'What does the customer want?',
  'Which topic fits the message?',
  'What is this about?',
  'Which topic is the message about?',
  'Pick the category of this message.',
  'What is the main topic?',
];
const ROUTE = [
  'Which team should handle this?',
  'Who should take this ticket?',
  'Where should this message go?',
  'Which team is this for?',
  'Which team should take this message?',
  'Route this ticket to a team.',
];

/** One message and several questions about it. */
export function ticket(draw: Draw): DecisionExample {
  const intent = draw.any(INTENTS);
  const anger = draw.chance(0.45) ? undefined : draw.int(0, 2);
  const urgency = anger !== undefined || draw.chance(0.5) ? undefined : draw.int(0, 2);
  const writer = draw.chance(0.3) ? person(draw) : undefined;
  const parts = [
    ...(draw.chance(0.3) ? [draw.pick(OPENINGS)] : []),
    ...(draw.chance(0.35) ? [filled(draw, draw.pick(CONTEXT))] : []),
    filled(draw, draw.pick(intent.says)),
    ...(anger === undefined ? [] : [draw.pick(ANGER[anger] ?? [])]),
    ...(urgency === undefined ? [] : [draw.pick(URGENCY[urgency] ?? [])]),
    ...(writer === undefined ? [] : [draw.chance(0.5) ? writer : `Best, ${writer}`]),
  ];
  const questions = [asksFor(draw, intent), asksFor(draw, intent), sorted(draw, intent)];
  if (draw.split === 'train') questions.push(sorted(draw, intent));
  if (anger !== undefined) questions.push(aboutAnger(draw, anger));
  if (urgency !== undefined) questions.push(aboutUrgency(draw, urgency));
  if (writer !== undefined) {
    const others = people(draw, 4).filter((name) => name !== writer);
    const asked = draw.pick([
      'Who wrote the message?',
      'What is the name of the writer?',
      'Who signed the message?',
      'Who is writing?',
      'Who wrote this?',
    ]);
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
  const input = `${draw.chance(0.2) ? `${filled(draw, draw.pick(CONTEXT))} ` : ''}${filled(draw, draw.pick(intent.says))}`;
  const answers = INTENTS.map(({ names }) => names[0] ?? '');
  const meanings = answers.map(() => undefined);
  const answer = INTENTS.indexOf(intent);
  const fixed: Asked = { type: 'choice', question: draw.pick(ABOUT), answers, meanings, answer };
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
  return choice(draw, draw.pick(byTeam ? ROUTE : ABOUT), option(intent), wrong);
}

function aboutAnger(draw: Draw, level: number): Asked {
  if (draw.chance(0.4) && level !== 1) {
    const question = draw.pick([
      'Is the customer angry?',
      'Is the writer angry?',
      'Does the writer sound angry?',
      'Is this person furious?',
      'Does the customer sound angry?',
    ]);
    return yesNo(draw, question, level === 2, ['the writer is angry', 'the writer is calm']);
  }
  const question = draw.pick([
    'How angry is the customer?',
    'How angry is the writer?',
    'Rate the anger of the message.',
    'What is the mood of the writer?',
    'How angry is this message?',
  ]);
  return score(question, draw.pick(ANGER_LEVELS), level);
}

function aboutUrgency(draw: Draw, level: number): Asked {
  if (draw.chance(0.4) && level !== 1) {
    const question = draw.pick([
      'Is this urgent?',
      'Is the message urgent?',
      'Must we answer at once?',
      'Is there any hurry?',
      'Is this message urgent?',
    ]);
    return yesNo(draw, question, level === 2, ['it must be handled at once', 'it can wait']);
  }
  const question = draw.pick([
    'How urgent is the message?',
    'How urgent is this?',
    'When must we answer?',
    'Rate the urgency.',
    'How urgent is this message?',
  ]);
  return score(question, draw.pick(URGENCY_LEVELS), level);
}
