/**
 * The functions that check values against schemas: ajv generates them. Their code is written when the sidecar is built
 * (sidecar/build/), so that a process neither loads ajv nor compiles: that took a third of a sidecar's start, in each of its
 * processes and threads. A schema whose code was not written, such as one of a test, is compiled when it is first used.
 *
 * Two keywords are ours. `minLength` and `maxLength` count code points as JSON Schema asks, but look at each character
 * only where the UTF-16 length leaves it open; ajv's own walk 16 million characters to learn that they are fewer than
 * 16,777,216. `x-message` replaces the wording for the schema that it stands in, and a message that
 * lists an object's fields leaves out one with `x-unlisted`.
 */
import { createRequire } from 'node:module';
import { compileFunction } from 'node:vm';
import type * as AjvModule from 'ajv';
import type { Ajv, Code, KeywordCxt, ValidateFunction } from 'ajv';
import { FORMATS, hasAtMost } from './formats.js';
import { WRITTEN } from './written-code.js';

export type { ErrorObject, ValidateFunction } from 'ajv';

/** What a schema's function does: it only checks, or fills in defaults, or fills them in and continues after a problem. */
export type Flavour = 'checking' | 'filling' | 'filling-all';

export interface KnownSchema {
  readonly schema: object;
  readonly flavour: Flavour;
  /** The name of its code. Absent: none is written for it. */
  readonly written?: string;
}

const load = createRequire(import.meta.url);
let recorded: KnownSchema[] | undefined;
const compilers = new Map<Flavour, Ajv>();

/** The schemas for which this process requested a function from now on: for the module that writes their code. */
export function recordSchemas(): readonly KnownSchema[] {
  return (recorded ??= []);
}

/**
 * Makes the function of a schema, which keeps the errors of its last call, and with them the values. Where its code was not written,
 * ajv is read now: a function that is made later needs no file, which a process may then be unable to open.
 */
export function functionOf<T>(known: KnownSchema): () => ValidateFunction<T> {
  recorded?.push(known);
  const { schema, flavour, written = '' } = known;
  const code = WRITTEN[written];
  if (code !== undefined) return () => fromCode(code()) as ValidateFunction<T>;
  let compiler = compilers.get(flavour);
  if (compiler === undefined) compilers.set(flavour, (compiler = makeAjv(flavour)));
  const ajv = compiler;
  return () => ajv.compile<T>(schema);
}

export function fromCode(code: string): ValidateFunction {
  const module: { exports?: unknown } = {};
  const run = compileFunction(code, ['module', 'hasAtMost', 'formats']) as (...references: unknown[]) => void;
  run(module, hasAtMost, FORMATS);
  return module.exports as ValidateFunction;
}

/** The body of a function of `module`, `hasAtMost` and `formats` that exports the schema's function. */
export function codeText({ schema, flavour }: Pick<KnownSchema, 'schema' | 'flavour'>): string {
  const standalone = load('ajv/dist/standalone') as { readonly default: (ajv: Ajv, of: ValidateFunction) => string };
  const ajv = makeAjv(flavour, true);
  return standalone.default(ajv, ajv.compile(schema));
}

/** `source`: keeps the text of the functions. */
function makeAjv(flavour: Flavour, source = false): Ajv {
  // Loaded here and not with this module, since most processes need none of it.
  const { Ajv, _ } = load('ajv') as typeof AjvModule;
  const useDefaults = flavour !== 'checking';
  const ajv = new Ajv({
    useDefaults,
    allErrors: flavour === 'filling-all',
    // Gives errors their schema, from which messages are made. Settings are the largest schema and refer to no other: there it is found
    // by the error's path (validator.ts), and a third of the function's code is not there.
    verbose: flavour !== 'filling-all',
    discriminator: true,
    strict: true,
    strictTypes: false,
    strictRequired: false,
    allowUnionTypes: true,
    logger: false,
    // Our schemas are constants, which a test validates against the meta-schema: compiling that takes longer than most
    // of them.
    meta: false,
    validateSchema: false,
    // Checks of the operator's own files run once, at the start: optimizing their code takes longer than running it.
    code: { optimize: !useDefaults, source, formats: _`formats` },
  });
  ajv.addVocabulary(['x-message', 'x-unlisted']);
  const within = (cxt: KeywordCxt, limit: number): Code => {
    const test = cxt.gen.scopeValue('func', { ref: hasAtMost, code: _`hasAtMost` });
    return _`${test}(${cxt.data}, ${limit})`;
  };
  const keywords: Readonly<Record<string, (cxt: KeywordCxt, limit: number) => void>> = {
    maxLength: (cxt, limit) => cxt.pass(within(cxt, limit)),
    minLength: (cxt, limit) => (limit > 0 ? cxt.fail(within(cxt, limit - 1)) : undefined),
  };
  for (const [keyword, write] of Object.entries(keywords)) {
    const code = (cxt: KeywordCxt): void => write(cxt, cxt.schema as number);
    ajv.removeKeyword(keyword);
    ajv.addKeyword({ keyword, type: 'string', schemaType: 'number', before: 'pattern', code });
  }
  for (const [name, format] of Object.entries(FORMATS)) ajv.addFormat(name, { type: 'string', ...format });
  return ajv;
}
