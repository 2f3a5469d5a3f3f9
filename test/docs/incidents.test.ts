import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { CATALOGUE } from '../../sidecar/domain/errors.js';
import { sourceRoot } from '../support/source-root.js';

/** Codes that a caller corrects by changing its request; the operator has nothing to do. */
const CALLERS_OWN = [
  ...['bad_request', 'context_length_exceeded', 'unsupported_endpoint', 'not_found', 'proxy_retired'],
  'idempotency_key_reused',
];

const PARTS = ['Seen', 'Why', 'Look at', 'Do'];

const page = readFileSync(join(sourceRoot, 'docs/incidents.md'), 'utf8');
const [errors = ''] = page.split('\n## Alerts\n');
const sections = errors
  .split('\n## ')
  .slice(1)
  .map((text) => {
    const [heading = '', ...rest] = text.split('\n');
    return { codes: [...heading.matchAll(/`(\w+)`/g)].map(([, code = '']) => code), text: rest.join('\n') };
  });

t.test('each error code that an operator must act on has one section, and no other code has', async (t) => {
  const expected = Object.keys(CATALOGUE).filter((code) => !CALLERS_OWN.includes(code));
  t.strictSame(sections.flatMap(({ codes }) => codes).sort(), expected.sort());
  for (const code of CALLERS_OWN) t.ok(code in CATALOGUE, `${code} is still a code`);
});

t.test('each section has symptoms, causes, where to look and what to do, in this order', async (t) => {
  for (const { codes, text } of sections) {
    const parts = [...text.matchAll(/^- \*\*([^*]+)\*\*: \S/gm)].map(([, part]) => part);
    t.strictSame(parts, PARTS, codes.join(', '));
  }
});
