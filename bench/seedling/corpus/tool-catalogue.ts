import type { Draw } from './draw.js';
import { item, person, place } from './names.js';

type Value = (draw: Draw) => string | number;

/** A tool and what people ask of it. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<
    Record<string, { readonly type: 'string' | 'integer'; readonly make: Value; readonly enum?: readonly string[] }>
  >;
  readonly asks: readonly string[];
}

const text = (make: Value): Tool['parameters'][string] => ({ type: 'string', make });
const whole = (low: number, high: number): Tool['parameters'][string] => ({
  type: 'integer',
  make: (draw) => draw.int(low, high),
});
const oneOf = (...values: string[]): Tool['parameters'][string] => ({
  type: 'string',
  make: (draw) => draw.any(values),
  enum: values,
});

const ROOMS = ['kitchen', 'hall', 'office', 'garage', 'garden', 'cellar'];

/** All tools that are offered. */
export const TOOLS: readonly Tool[] = [
  {
    name: 'get_weather',
    description: 'The weather in a city',
    parameters: { city: text(place) },
    asks: [
      'What is the weather in {city}?',
      'How is the weather in {city}?',
      'Will it rain in {city}?',
      'Is it warm in {city}?',
      'What is the weather like in {city}?',
      'Weather in {city}, please.',
    ],
  },
  {
    name: 'get_time',
    description: 'The time in a city',
    parameters: { city: text(place) },
    asks: [
      'What time is it in {city}?',
      'Tell me the time in {city}.',
      'How late is it in {city}?',
      'The time in {city}, please.',
      'What is the time in {city}?',
      'Which time is it in {city}?',
    ],
  },
  {
    name: 'set_light',
    description: 'Turn the light of a room on or off',
    parameters: { room: text((draw) => draw.any(ROOMS)), state: oneOf('on', 'off') },
    asks: [
      'Turn {state} the light in the {room}.',
      'Switch the {room} light {state}.',
      'Light {state} in the {room}, please.',
      'Please turn the light in the {room} {state}.',
      'Turn the light in the {room} {state}.',
    ],
  },
  {
    name: 'send_message',
    description: 'Send a message to a person',
    parameters: {
      to: text(person),
      text: text((draw) => draw.any(['hello', 'I am late', 'call me', 'thank you', 'see you tomorrow', 'yes'])),
    },
    asks: [
      'Send {to} the message: {text}',
      'Tell {to}: {text}',
      'Write to {to}: {text}',
      'Send a message to {to}: {text}',
      'Please tell {to}: {text}',
    ],
  },
  {
    name: 'order_status',
    description: 'The status of an order',
    parameters: { order: whole(100, 9999) },
    asks: [
      'Where is order {order}?',
      'What is the status of order {order}?',
      'Has order {order} been sent?',
      'Look up order {order}.',
      'Look up the status of order {order}.',
      'Status of order {order}?',
    ],
  },
  {
    name: 'set_timer',
    description: 'Start a timer',
    parameters: { minutes: whole(1, 90) },
    asks: [
      'Set a timer for {minutes} minutes.',
      'Start a timer of {minutes} minutes.',
      'Remind me in {minutes} minutes.',
      'Wake me in {minutes} minutes.',
      'Start a timer for {minutes} minutes.',
    ],
  },
  {
    name: 'search',
    description: 'Search the web',
    parameters: { query: text((draw) => draw.any([item, place, person])(draw)) },
    asks: [
      'Search for {query}.',
      'Look up {query} on the web.',
      'Find something about {query}.',
      'Search the web for {query}.',
      'Search the web: {query}',
    ],
  },
  {
    name: 'add',
    description: 'Add two numbers',
    parameters: { a: whole(1, 999), b: whole(1, 999) },
    asks: [
      'Add {a} and {b}.',
      'What is {a} plus {b}?',
      'Sum of {a} and {b}?',
      'How much is {a} + {b}?',
      'How much is {a} and {b}?',
    ],
  },
  {
    name: 'set_temperature',
    description: 'Set the temperature of a room in degrees',
    parameters: { room: text((draw) => draw.any(ROOMS)), degrees: whole(10, 30) },
    asks: [
      'Heat the {room} to {degrees} degrees.',
      'Set the {room} to {degrees} degrees.',
      'Make it {degrees} degrees in the {room}.',
      'I want {degrees} degrees in the {room}.',
      'Set the temperature in the {room} to {degrees} degrees.',
    ],
  },
  {
    name: 'buy',
    description: 'Buy an item',
    parameters: { item: text(item), count: whole(1, 9) },
    asks: [
      'Buy {count} of the {item}.',
      'Order {count} {item}s.',
      'I want to buy {count} {item}s.',
      'Please get me {count} {item}s.',
      'Please buy {count} {item}s.',
    ],
  },
  {
    name: 'translate',
    description: 'Translate a word',
    parameters: { word: text(item), language: oneOf('French', 'German', 'Spanish') },
    asks: [
      'Translate {word} to {language}.',
      'What is {word} in {language}?',
      'How do you say {word} in {language}?',
      'The word {word} in {language}, please.',
      'What is the word {word} in {language}?',
    ],
  },
  {
    name: 'lock_door',
    description: 'Lock or unlock a door',
    parameters: { door: oneOf('front', 'back'), action: oneOf('lock', 'unlock') },
    asks: [
      'Please {action} the {door} door.',
      '{action} the {door} door',
      'Can you {action} the {door} door?',
      'I want you to {action} the {door} door.',
      'Could you {action} the {door} door?',
    ],
  },
];

/** Words after a tool's result. */
export const RESULTS: Readonly<
  Record<string, (draw: Draw, values: Readonly<Record<string, string | number>>) => readonly [string, string]>
> = {
  get_weather: (draw, { city }) => {
    const [sky, degrees] = [draw.any(['sunny', 'rainy', 'cloudy', 'windy']), draw.int(1, 35)];
    return [JSON.stringify({ sky, degrees }), `In ${city ?? ''} it is ${sky}, with ${degrees} degrees.`];
  },
  get_time: (draw, { city }) => {
    const time = `${draw.int(1, 12)}:${draw.int(10, 59)}`;
    return [JSON.stringify({ time }), `In ${city ?? ''} it is ${time}.`];
  },
  order_status: (draw, { order }) => {
    const status = draw.any(['shipped', 'paid', 'waiting', 'delivered']);
    return [JSON.stringify({ status }), `Order ${order ?? ''} is ${status}.`];
  },
  add: (_, { a, b }) => {
    const sum = Number(a) + Number(b);
    return [JSON.stringify({ sum }), `The sum is ${sum}.`];
  },
};
