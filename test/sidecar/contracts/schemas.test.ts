/** The schemas that are compiled at load: the sidecar takes them as they are, so here they are held against the meta-schema. */
import { Ajv, type AnySchema, type ValidateFunction } from 'ajv';
import t from 'tap';
import { ANSWER_SCHEMAS } from '../../../sidecar/contracts/answer-schemas.js';

/** Of requests, answers, settings, and each file that operators write or the sidecar keeps. */
const MODULES = [
  'contracts/chat',
  'contracts/decisions',
  'contracts/systemone',
  'config/config',
  'access/authorizer-answer',
  'access/credit-file',
  'access/key-file-schema',
  'usage/balance-file',
  'usage/price-file',
  'usage/record-schema',
];

t.test('each is a schema', async (t) => {
  const seen: AnySchema[] = Object.values(ANSWER_SCHEMAS);
  // Ajv's methods belong to its prototype, and the modules are not loaded yet: each compiles its own as it loads.
  const compile = Reflect.get(Ajv.prototype, 'compile') as (this: Ajv, schema: AnySchema) => ValidateFunction;
  Ajv.prototype.compile = function (this: Ajv, schema: AnySchema) {
    seen.push(schema);
    return compile.call(this, schema);
  } as typeof Ajv.prototype.compile;
  t.teardown(() => Reflect.set(Ajv.prototype, 'compile', compile));
  const before = seen.length;
  for (const name of MODULES) await import(`../../../sidecar/${name}.js`);
  t.equal(seen.length - before, MODULES.length);
  const ajv = new Ajv({ strict: false });
  for (const schema of seen) t.ok(ajv.validateSchema(schema), ajv.errorsText());
  t.notOk(ajv.validateSchema({ type: 'object', properties: { n: { minimum: 'one' } } }), 'it tells');
});
