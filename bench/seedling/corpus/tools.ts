/** Tools, and when to call which. */
import type { Draw } from './draw.js';
import { item, person, place } from './names.js';
import { WORDINGS } from './wordings.js';

type Value = (draw: Draw) => string | number;

/** A tool and what people ask of it. */
interface Tool {
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

const PARAMETERS: Readonly<Record<keyof typeof WORDINGS.tools, Tool['parameters']>> = {
  get_weather: { city: text(place) },
  get_time: { city: text(place) },
  set_light: { room: text((draw) => draw.any(ROOMS)), state: oneOf('on', 'off') },
  send_message: {
    to: text(person),
    text: text((draw) => draw.any(['hello', 'I am late', 'call me', 'thank you', 'see you tomorrow', 'yes'])),
  },
  order_status: { order: whole(100, 9999) },
  set_timer: { minutes: whole(1, 90) },
  search: { query: text((draw) => draw.any([item, place, person])(draw)) },
  add: { a: whole(1, 999), b: whole(1, 999) },
  set_temperature: { room: text((draw) => draw.any(ROOMS)), degrees: whole(10, 30) },
  buy: { item: text(item), count: whole(1, 9) },
  translate: { word: text(item), language: oneOf('French', 'German', 'Spanish') },
  lock_door: { door: oneOf('front', 'back'), action: oneOf('lock', 'unlock') },
};

/** All tools that are offered. */
const TOOLS: readonly Tool[] = Object.entries(PARAMETERS).map(([name, parameters]) => ({
  name,
  ...WORDINGS.tools[name as keyof typeof PARAMETERS],
  parameters,
}));

/** Words after a tool's result. */
const RESULTS: Readonly<
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

interface ToolUse {
  readonly tools: readonly object[];
  readonly ask: string;
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
  /** The tool's result and the answer from it, for some tools. */
  readonly result?: readonly [string, string];
}

/** Some tools offered, and a wish that one of them fits. */
export function toolUse(draw: Draw): ToolUse {
  const tool = draw.any(TOOLS);
  const offered = draw.shuffle([
    tool,
    ...draw.some(
      TOOLS.filter((other) => other !== tool),
      draw.int(0, 2),
    ),
  ]);
  const values = Object.fromEntries(Object.entries(tool.parameters).map(([key, { make }]) => [key, make(draw)]));
  const ask = draw.pick(tool.asks).replace(/\{(\w+)\}/g, (_, key: string) => String(values[key] ?? ''));
  const result = RESULTS[tool.name]?.(draw, values);
  const json = `{${Object.entries(values)
    .map(([key, value]) => `"${key}": ${JSON.stringify(value)}`)
    .join(', ')}}`;
  return {
    tools: offered.map(declared),
    ask: ask.charAt(0).toUpperCase() + ask.slice(1),
    name: tool.name,
    arguments: json,
    ...(result && { result }),
  };
}

/** Tools that do not fit what is asked. */
export function unfitting(draw: Draw, forbidden: RegExp): readonly object[] {
  return draw
    .some(
      TOOLS.filter(({ name }) => !forbidden.test(name)),
      draw.int(1, 3),
    )
    .map(declared);
}

/** A wish that none of the offered tools serves. */
export function unserved(draw: Draw): { readonly tools: readonly object[]; readonly ask: string } {
  const { ask, name } = toolUse(draw);
  return { ask, tools: unfitting(draw, new RegExp(`^(${name}|search)$`)) };
}

function declared({ name, description, parameters }: Tool): object {
  const properties = Object.fromEntries(
    Object.entries(parameters).map(([key, { type, enum: values }]) => [key, { type, ...(values && { enum: values }) }]),
  );
  return {
    type: 'function',
    function: { name, description, parameters: { type: 'object', properties, required: Object.keys(parameters) } },
  };
}
