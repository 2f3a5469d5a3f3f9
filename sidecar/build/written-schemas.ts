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
  await import('../config/config.js');
  await import('../access/authorizer.js');
  await import('../access/credit.js');
  await import('../access/key-file.js');
  await import('../usage/balances.js');
  await import('../usage/prices.js');
  await import('../usage/spool-format.js');
  await import('../usage/totals.js');
}

let found: Promise<readonly KnownSchema[]> | undefined;

/**
 * The schemas of requests, answers, settings, and of each file that operators write or the sidecar keeps. Must be called before
 * the modules that have them are loaded.
 */
export function allSchemas(): Promise<readonly KnownSchema[]> {
  return (found ??= find());
}

async function find(): Promise<readonly KnownSchema[]> {
  const recorded = recordSchemas();
  await loadAll();
  prepareAnswers();
  return [...recorded];
}

/** Of an answer's schema the name begins so. */
const ANSWER = 'answer-';

/** The text of the module contracts/written-code.ts with the code of these schemas. Throws if two of them have one name. */
export function moduleText(schemas: readonly KnownSchema[]): string {
  const texts = new Map<string, string>();
  for (const known of schemas) {
    const name = known.written?.name;
    if (name === undefined || texts.has(name)) throw new Error(`schema names are unique: ${name ?? 'there is none'}`);
    texts.set(name, codeText(known));
  }
  const answers: Record<string, string> = {};
  const lines = Array.from(texts, ([name, code]) => {
    if (!name.startsWith(ANSWER)) return `export const ${constantOf(name)} = ${JSON.stringify({ name, code })};\n`;
    answers[name.slice(ANSWER.length)] = code;
    return '';
  });
  return `${lines.join('')}const ANSWERS = ${JSON.stringify(answers)};
export function answerCode(kind) {
  return { name: '${ANSWER}' + kind, code: ANSWERS[kind] };
}
`;
}

function constantOf(name: string): string {
  return `${name.toUpperCase().replaceAll('-', '_')}_CODE`;
}
