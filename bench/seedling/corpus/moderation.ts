/** Posts and comments: what is wrong with them, if anything. */
import { asking, choice, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { Asked, DecisionExample } from './example.js';
import { filled } from './names.js';

interface Harm {
  readonly names: readonly string[];
  readonly description: string;
  readonly asked: readonly string[];
  /** 0: fine, 1: a little, 2: bad. */
  readonly level: number;
  readonly says: readonly string[];
}

const HARMS: readonly Harm[] = [
  {
    names: ['safe', 'fine', 'no problem'],
    description: 'nothing is wrong with it',
    asked: [
      'Is the post fine to publish?',
      'Is the post harmless?',
      'Is the comment safe?',
      'Can this be published?',
      'Is the comment harmless?',
    ],
    level: 0,
    says: [
      'I painted my {item} {color} today.',
      'Does anyone know a good cafe in {place}?',
      'We walked through {place} and had cake.',
      'My cat sleeps on the {item} all day.',
      'Does anyone know a nice walk in {place}?',
      'Happy birthday, {name}!',
      '{name} and I watched a film yesterday.',
      'The garden is green again after the rain.',
      'I learned to bake bread this week.',
      'We had cake in the garden with {name}.',
    ],
  },
  {
    names: ['insult', 'abuse', 'harassment'],
    description: 'it insults someone',
    asked: [
      'Does the post insult someone?',
      'Is the comment an insult?',
      'Is someone insulted?',
      'Does the text contain an insult?',
      'Does the comment insult someone?',
    ],
    level: 1,
    says: [
      'You are an idiot, {name}.',
      '{name} is the dumbest person in {place}.',
      'What a stupid loser you are.',
      'Shut up, you fool.',
      '{name} is a stupid idiot.',
      'Everyone knows that {name} is a liar and a clown.',
      'Only a moron would write that.',
      'You are as dumb as a {item}.',
      'Nobody likes you, {name}, you ugly fool.',
      'You are a stupid fool, {name}.',
    ],
  },
  {
    names: ['threat', 'violence', 'threat of violence'],
    description: 'it threatens someone with harm',
    asked: [
      'Does the post threaten someone?',
      'Is the comment a threat?',
      'Is someone threatened?',
      'Does the text contain a threat?',
      'Does the comment threaten someone?',
    ],
    level: 2,
    says: [
      'I will find you and hurt you.',
      'You will pay for this with blood, {name}.',
      'I am going to break your legs.',
      'If you come to {place} again, I will kill you.',
      'I will find you in {place} and break your legs.',
      'Watch your back, {name}, or I will beat you.',
      'I will burn your house down.',
      'Tomorrow I will smash your face.',
      'I am coming with a knife.',
      'I am going to hurt you, {name}.',
    ],
  },
  {
    names: ['spam', 'advertising', 'unwanted advertising'],
    description: 'it advertises something or is a scam',
    asked: [
      'Is the post spam?',
      'Is the comment advertising?',
      'Is this spam?',
      'Does the text try to sell something?',
      'Is the comment spam?',
    ],
    level: 1,
    says: [
      'Buy cheap watches now! Click here!',
      'You have won {amount} dollars! Send your bank details.',
      'Earn {amount} dollars a day from home, click the link!',
      'Best price for a {item}, only today! Order now!',
      'Buy a cheap {item} now, click the link!',
      'Free phones for the first {days} people, click fast!',
      'Make money fast with this one trick!',
      'Visit our shop for a {item} at half price!',
      'Click here to win a free {item}!',
      'Earn money fast, click here now!',
    ],
  },
  {
    names: ['private data', 'personal data', 'leak'],
    description: 'it gives away a phone number, an address or a password',
    asked: [
      'Does the post contain private data?',
      'Does the comment give away private data?',
      'Is private data given away?',
      'Does the text leak someone’s data?',
      'Does the post give away private data?',
    ],
    level: 1,
    says: [
      'The phone number of {name} is 0{order}{days}.',
      '{name} lives at Mill Road {days} in {place}.',
      'My password is {color}{order}.',
      'Here is the card number of {name}: {order} {order}.',
      'The card number of {name} is {order} {order}.',
      'You can reach {name} at home under 0{order}.',
      'The code of our front door is {order}.',
      'The bank account of {name} has the number {order}{order}.',
      'The address of {name} is Park Street {days}, {place}.',
      'The phone number of my boss is 0{order}.',
    ],
  },
];

const SORT = [
  'What kind of post is this?',
  'Which rule does the post break?',
  'What is wrong with the comment?',
  'How should this be labelled?',
  'Which label fits the post?',
  'Which label fits?',
];
const LEVELS = [
  ['harmless', 'should be reviewed', 'must be removed at once'],
  ['no harm', 'some harm', 'serious harm'],
  ['fine', 'bad', 'dangerous'],
  ['safe', 'rude or unwanted', 'dangerous'],
  ['no harm', 'bad', 'dangerous'],
];

/** One post and questions about it. */
export function post(draw: Draw): DecisionExample {
  const harm = draw.any(HARMS);
  const [safe] = HARMS;
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
  const harm = draw.any(HARMS);
  const answers = HARMS.map(({ names }) => names[0] ?? '');
  const meanings = answers.map(() => undefined);
  const question: Asked = { type: 'choice', question: draw.pick(SORT), answers, meanings, answer: HARMS.indexOf(harm) };
  const input = filled(draw, draw.pick(harm.says));
  return {
    kind: 'decision',
    topic: 'moderation',
    input,
    questions: [question, sorted(draw, harm), asked(draw, harm), asked(draw, harm)],
  };
}

function asked(draw: Draw, harm: Harm): Asked {
  const other = draw.chance(0.5) ? harm : draw.any(HARMS.filter((one) => one !== harm));
  return yesNo(draw, draw.pick(other.asked), other === harm, [other.description, 'it does not']);
}

function sorted(draw: Draw, harm: Harm): Asked {
  const option = (one: Harm): { name: string; description: string } => ({
    name: draw.pick(one.names),
    description: one.description,
  });
  return choice(draw, draw.pick(SORT), option(harm), HARMS.filter((one) => one !== harm).map(option));
}

function rated(draw: Draw, harm: Harm): Asked {
  return score(
    draw.pick([
      'How harmful is the post?',
      'Rate the harm of the text.',
      'How bad is it?',
      'How harmful is this?',
      'How harmful is the text?',
    ]),
    draw.pick(LEVELS),
    harm.level,
  );
}
