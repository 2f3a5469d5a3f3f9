/** Makes the code of the schemas' checks, which processes then load in place of ajv (contracts/schema-code.ts). */
import { prepareAnswers } from '../contracts/answer-schemas.js';
import { codeText, recordSchemas, type KnownSchema } from '../contracts/schema-code.js';

/** Importing these modules makes their checks. */
async function loadAll(): Promise<void> {
  await import('../contracts/chat.js');
  await import('../contracts/compatible.js');
  await import('../contracts/responses.js');
  await import('../contracts/messages.js');
  await import('../contracts/decisions.js');
  await import('../contracts/systemone.js');
  await import('../contracts/inputs.js');
  await import('../contracts/batches.js');
  await import('../config/config.js');
  await import('../access/authorizer.js');
  await import('../access/credit.js');
  await import('../access/key-file.js');
  await import('../usage/balances.js');
  await import('../usage/prices.js');
  await import('../usage/spool-format.js');
  await import('../usage/totals-files.js');
}

let found: Promise<readonly KnownSchema[]> | undefined;

/** The schemas of requests, answers, settings and kept files. Must be called before the modules that have them are loaded. */
export function allSchemas(): Promise<readonly KnownSchema[]> {
  return (found ??= find());
}

async function find(): Promise<readonly KnownSchema[]> {
  const recorded = recordSchemas();
  await loadAll();
  prepareAnswers();
  return [...recorded];
}

/** Where the code of all lies, beside the module. */
const CODE_FILE = 'written-code.txt';
/** In two pieces: the bundle of this module replaces the whole (.ci/bundle.mjs). */
const OWN_URL = ['import.meta', 'url'].join('.');

/** The module contracts/written-code.ts with these schemas' code: its text, and the file it reads. Throws if two schemas have one name. */
export function writtenFiles(schemas: readonly KnownSchema[]): { readonly module: string; readonly code: string } {
  const places = new Map<string, string>();
  const texts: string[] = [];
  let end = 0;
  for (const known of schemas) {
    const { written: name } = known;
    if (name === undefined || places.has(name)) throw new Error(`schema names are unique: ${name ?? 'there is none'}`);
    const text = codeText(known);
    texts.push(text);
    const from = end;
    end += Buffer.byteLength(text);
    places.set(name, `  '${name}': at(${from}, ${end}),\n`);
  }
  const module = `import { readFileSync } from 'node:fs';
const bytes = readFileSync(new URL('./${CODE_FILE}', ${OWN_URL}));
const at = (from, to) => () => bytes.toString('utf8', from, to);
export const WRITTEN = {
${[...places.values()].join('')}};
`;
  return { module, code: texts.join('') };
}
