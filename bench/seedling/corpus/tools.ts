/** Tools, and when to call which. */
import type { Draw } from './draw.js';
import { RESULTS, TOOLS, type Tool } from './tool-catalogue.js';

export interface ToolUse {
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
