/** Writes the code of the schemas' checks, which processes then load in place of ajv (contracts/schema-code.ts). */
import { mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { prepareAnswers } from '../contracts/answer-schemas.js';
import { CODE_FOLDER, codeName, codeText, recordSchemas, type KnownSchema } from '../contracts/schema-code.js';

/** Importing these modules compiles their schemas. */
const MODULES = [
  'contracts/chat',
  'contracts/compatible',
  'contracts/responses',
  'contracts/messages',
  'contracts/decisions',
  'contracts/systemone',
  'config/config',
  'access/authorizer',
  'access/credit',
  'access/key-file',
  'usage/balances',
  'usage/prices',
  'usage/spool-format',
];

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
  for (const name of MODULES) await import(`../${name}.js`);
  prepareAnswers();
  return [...recorded];
}

/** Writes the code of all schemas and removes that of others. Processes that start meanwhile find whole files. */
export async function writeSchemas(folder = CODE_FOLDER): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const schemas = await allSchemas();
  for (const known of schemas) {
    const file = join(folder, codeName(known));
    writeFileSync(`${file}.${process.pid}`, codeText(known));
    renameSync(`${file}.${process.pid}`, file);
  }
  const names = new Set(schemas.map((known) => codeName(known)));
  for (const name of readdirSync(folder)) if (!names.has(name)) rmSync(join(folder, name), { force: true });
}
