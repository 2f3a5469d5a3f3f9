/**
 * The schemas, checked against the meta-schema, which the sidecar does not do, and the written code of their checks.
 */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv, type ValidateFunction } from 'ajv';
import t from 'tap';
import { allSchemas, writtenFiles } from '../../../sidecar/build/written-schemas.js';
import { fromCode, functionOf, type KnownSchema } from '../../../sidecar/contracts/schema-code.js';
import { WRITTEN } from '../../../sidecar/contracts/written-code.js';
import { LIGHT_CASES } from '../../contract/tables/cases.js';

const schemas = await allSchemas();

t.test('each is a valid schema', async (t) => {
  const ajv = new Ajv({ strict: false });
  const wrong = schemas.filter(({ schema }) => ajv.validateSchema(schema) !== true);
  t.strictSame(wrong, []);
  t.equal(new Set(schemas.map(({ schema }) => schema)).size, schemas.length, 'each once');
  t.ok(schemas.length > 20, `${schemas.length} schemas`);
  t.notOk(ajv.validateSchema({ type: 'object', properties: { n: { minimum: 'one' } } }), 'an invalid one is found');
});

/** The results of a check function that messages are made from. */
function problems(validate: ValidateFunction, value: unknown): unknown {
  return validate(value)
    ? 'none'
    : validate.errors?.map(({ instancePath, keyword, params, schemaPath }) => ({
        instancePath,
        keyword,
        params: params as unknown,
        schemaPath,
      }));
}

t.test('the written code finds what ajv finds', async (t) => {
  // Code of one generator: some bodies are enough for what could differ, which is what the code refers to.
  const bodies = LIGHT_CASES.filter((_, at) => at % 20 === 0).flatMap(({ value }) => (value ? [value()] : []));
  const apart = schemas.filter(({ schema, flavour, written = '' }) => {
    const code = WRITTEN[written];
    if (code === undefined) return true;
    const [own, compiled] = [fromCode(code()), functionOf({ schema, flavour })()];
    return bodies.some((body) => {
      const [a, b] = [structuredClone(body), structuredClone(body)];
      return JSON.stringify([problems(own, a), a]) !== JSON.stringify([problems(compiled, b), b]);
    });
  });
  t.strictSame(apart.map(nameOf), []);
});

t.test('two schemas of one name, and one without, end the build', async (t) => {
  const known: KnownSchema = { written: 'a', schema: { const: 1 }, flavour: 'checking' };
  t.throws(() => writtenFiles([known, { ...known, schema: { const: 2 } }]), { message: /unique: a$/ });
  t.throws(() => writtenFiles([{ schema: { const: 1 }, flavour: 'checking' }]), { message: /there is none/ });
});

function nameOf({ schema, flavour }: KnownSchema): string {
  return `${flavour} ${JSON.stringify(schema).slice(0, 200)}`;
}

t.test('a process loads ajv only for a schema without written code', async (t) => {
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
  t.strictSame(
    schemas.filter(({ written = '' }) => WRITTEN[written] === undefined).map(nameOf),
    [],
    'the build has written all',
  );
});
