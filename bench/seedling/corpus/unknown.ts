/** What a small model is asked and cannot know. */
import type { Draw } from './draw.js';
import { filled } from './names.js';

/** Questions that it cannot answer; the slots are filled with names and places. */
const UNKNOWN: readonly string[] = [
  'What is the capital of {place}?',
  'What is the weather in {place}?',
  'Who won the game yesterday?',
  'What is the news today?',
  'What is the weather like in {place} today?',
  'What time is it?',
  'What is the meaning of life?',
  'Who is {name}?',
  'How old is {name}?',
  'How far is it to {place}?',
  'What should I cook tonight?',
  'Explain quantum physics.',
  'Who is the president?',
  'How do I fix my {item}?',
  'How do I repair a {item}?',
  'Write a program in Python.',
  'What is the price of a {item}?',
  'Why is the sky blue?',
  'Where can I buy a {item}?',
  'Where does {name} live?',
  'Translate this to French.',
  'When was {place} founded?',
  'What is the best {item}?',
  'Which {item} should I buy?',
  'What is the price of the {item}?',
  'How does a {item} work?',
  'Write an essay about {place}.',
  'What day is it today?',
  'Who invented the {item}?',
  'Who wrote the book about {place}?',
  'Will it rain in {place} tomorrow?',
  'How many people live in {place}?',
  'What happened in {place} in 1{days}?',
  'Give me advice about {name}.',
  'How many people are in {place}?',
  'Summarize the news.',
  'Recommend a book.',
  'Plan a trip to {place}.',
  'Why do cats sleep so much?',
  'Recommend a film.',
];

export const CANNOT = 'I do not know that. I am a very small model.';

/** One question of those; {@link CANNOT} is its answer. */
export function unknown(draw: Draw): string {
  return filled(draw, draw.pick(UNKNOWN));
}
