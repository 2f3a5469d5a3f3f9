import type { Test } from 'tap';
import { JinjaTemplate } from '../../engine/prompt/jinja.js';

const ITEMS = {
  yes: true,
  o: { a: 1 },
  rows: [
    { n: 1, f: { name: 'x' } },
    { n: 3, calls: [1], f: { name: 'y' } },
  ],
};

/** Sources of templates, with what Jinja2 makes of each. */
export type JinjaCases = readonly (readonly [source: string, text: string])[];

/** Each is rendered as by Jinja2, with the variables `yes`, `o` and `rows`. */
export function areRendered(t: Test, cases: JinjaCases): void {
  for (const [source, text] of cases) t.equal(new JinjaTemplate(source).render(ITEMS), text, source);
  t.end();
}

/** Each throws, when it is read or rendered with the same variables. */
export function areRefused(t: Test, sources: readonly string[]): void {
  for (const source of sources) t.throws(() => new JinjaTemplate(source).render(ITEMS), source);
  t.end();
}
