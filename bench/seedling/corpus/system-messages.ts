/** System messages before a talk. */
export const SYSTEMS: readonly string[] = [
  'You are a helpful assistant.',
  'You are a friendly assistant.',
  'Answer briefly.',
  'You are a helpful assistant. Answer in one sentence.',
  'You are a helpful and friendly assistant.',
  'You help the customers of a shop.',
  'Be short and clear.',
  'You are an assistant for {place}.',
  'Help the user.',
  'You are a short and clear assistant.',
];
