/**
 * The schemas, checked against the meta-schema, which the sidecar does not do, and the written code of their checks.
 */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv, type ValidateFunction } from 'ajv';
import t from 'tap';
import { allSchemas, writeSchemas } from '../../../sidecar/build/written-schemas.js';
import {
  CODE_FOLDER,
  codeName,
  fromCode,
  functionOf,
  type KnownSchema,
} from '../../../sidecar/contracts/schema-code.js';
import { LIGHT_CASES } from '../../contract/tables/cases.js';

const schemas = await allSchemas();

t.test('each is a valid schema', (t) => {
  const ajv = new Ajv({ strict: false });
  const wrong = schemas.filter(({ schema }) => ajv.validateSchema(schema) !== true);
  t.strictSame(wrong, []);
  t.equal(new Set(schemas.map(({ schema }) => schema)).size, schemas.length, 'each once');
  t.ok(schemas.length > 20, `${schemas.length} schemas`);
  t.notOk(ajv.validateSchema({ type: 'object', properties: { n: { minimum: 'one' } } }), 'an invalid one is found');
  t.end();
});

/** The results of a check function that messages are made from. */
function problems(validate: ValidateFunction, value: unknown): unknown {
  return validate(value)
    ? 'none'
    : validate.errors?.map(({ instancePath, keyword, params, schema, parentSchema }) => ({
        instancePath,
        keyword,
        params: params as unknown,
        schema: schema,
        wording: (parentSchema as Record<string, unknown> | undefined)?.['x-message'],
      }));
}

t.test('the written code finds what ajv finds', async (t) => {
  const folder = t.testdir({ 'of-an-old-schema.cjs': '' });
  await writeSchemas(folder);
  t.strictSame(
    readdirSync(folder).sort(),
    schemas.map((known) => codeName(known)).sort(),
    'one file for each, and no others',
  );
  // Code of one generator: some bodies are enough for what could differ, which is what the code refers to.
  const bodies = LIGHT_CASES.filter((_, at) => at % 20 === 0).flatMap(({ value }) => (value ? [value()] : []));
  const apart = schemas.filter((known) => {
    const written = fromCode(readFileSync(join(folder, codeName(known)), 'utf8'));
    // Another schema for the look-up, and the same one for ajv.
    const compiled = functionOf({ ...known.schema, $comment: 'unwritten' }, known.flavour)();
    return bodies.some((body) => {
      const [a, b] = [structuredClone(body), structuredClone(body)];
      return JSON.stringify([problems(written, a), a]) !== JSON.stringify([problems(compiled, b), b]);
    });
  });
  t.strictSame(apart.map(nameOf), []);
});

t.test('code of another schema, of another purpose or of other options is never loaded', (t) => {
  const known: KnownSchema = { schema: { const: 1 }, flavour: 'checking' };
  const others = [
    codeName({ ...known, schema: { const: 2 } }),
    codeName({ ...known, flavour: 'filling' }),
    codeName(known, 'ajv 0.0.0 with other options'),
  ];
  t.notOk(others.includes(codeName(known)), 'it has another name');
  t.equal(new Set(others).size, others.length);
  t.end();
});

function nameOf({ schema, flavour }: KnownSchema): string {
  return `${flavour} ${JSON.stringify(schema).slice(0, 200)}`;
}

t.test('a process loads ajv only for a schema without written code', async (t) => {
  await writeSchemas();
  const loadsAjv = async (main: string): Promise<unknown> => {
    const script = `await import(${JSON.stringify(main)});
      const { _cache } = (await import('node:module')).default;
      console.log(Object.keys(_cache).some((path) => path.endsWith('/ajv/dist/ajv.js')));`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
    return JSON.parse(stdout);
  };
  const parse = new URL('../../../sidecar/contracts/parse.js', import.meta.url).href;
  const serve = new URL('../../../sidecar/commands/serve.js', import.meta.url).href;
  t.equal(await loadsAjv(parse), false, 'what every prompt host loads');
  t.equal(await loadsAjv(serve), false, 'what a sidecar loads');
  const other = join(t.testdir(), 'other.mjs');
  const validator = JSON.stringify(new URL('../../../sidecar/contracts/validator.js', import.meta.url).href);
  writeFileSync(other, `import { compile } from ${validator};\ncompile({ const: 'unwritten' });\n`);
  t.equal(await loadsAjv(other), true);
  t.ok(readdirSync(CODE_FOLDER).length >= schemas.length);
});
