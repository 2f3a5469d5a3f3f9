import fc from 'fast-check';
import t from 'tap';
import { validateAnswer } from '../../../sidecar/contracts/answer-schemas.js';
import { parseBody } from '../../../sidecar/contracts/parse.js';
import type { Route } from '../../../sidecar/contracts/requests.js';
import { errorBody } from '../../../sidecar/errors.js';
import { FULL_CHAT, FULL_DECISIONS, FULL_SYSTEMONE, type Json, bytesOf } from '../../support/bodies.js';

/** Bodies a property; `make fuzz` asks for more. */
const RUNS = Number(process.env['RA_FUZZ_RUNS'] ?? 1500);

/** In every text and name that fuzzing puts into a body, and in no message that may come back. */
const CANARY = 'zcanary';

const FULL: Readonly<Record<Route, Json>> = { chat: FULL_CHAT, decisions: FULL_DECISIONS, systemone: FULL_SYSTEMONE };
const ROUTES = Object.keys(FULL) as Route[];

/** Parses, and holds a refusal to the error schema and to silence about what it refuses. */
function check(route: Route, bytes: Uint8Array): 'ok' | 'invalid' {
  const parsed = parseBody(route, bytes);
  if (parsed.kind === 'invalid') {
    const body: unknown = JSON.parse(errorBody(parsed.error));
    const outcome = validateAnswer('error', body);
    if (!outcome.ok) throw new Error(`${outcome.path} ${outcome.message}`);
    if (JSON.stringify(body).includes(CANARY)) throw new Error('the error repeats what the caller sent');
    if (parsed.error.status !== 400) throw new Error('not a 400');
  }
  return parsed.kind;
}

const canaryText = fc
  .oneof(fc.constant(''), fc.string({ unit: 'binary', maxLength: 10 }), fc.constantFrom('/', '~1', '__proto__', '7'))
  .map((text) => `${text}${CANARY}`);

/** JSON of any shape whose every name and text holds the canary. */
const anything = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.constant(null),
    fc.boolean(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.integer({ min: -2, max: 300 }),
    canaryText,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(canaryText, tie('value'), { maxKeys: 4 }),
  ),
})).value;

type Step = 'replace' | 'remove' | 'add' | 'copy';

interface Mutation {
  /** Picks a place among all places of the body. */
  readonly pick: number;
  readonly step: Step;
  readonly name: string;
  readonly value: Json;
}

const mutation: fc.Arbitrary<Mutation> = fc.record({
  pick: fc.nat(),
  step: fc.constantFrom<Step>('replace', 'remove', 'add', 'copy'),
  name: canaryText,
  value: anything,
});

/** All containers of a value, the outermost first. */
function containersOf(value: unknown): (unknown[] | Record<string, unknown>)[] {
  if (typeof value !== 'object' || value === null) return [];
  const container = value as unknown[] | Record<string, unknown>;
  return [container, ...Object.values(container).flatMap(containersOf)];
}

/** Changes one place of a body that the caller owns. */
function mutate(body: unknown, { pick, step, name, value }: Mutation): void {
  const containers = containersOf(body);
  const container = containers[pick % containers.length];
  if (container === undefined) return;
  const keys = Object.keys(container);
  const key = keys[pick % Math.max(1, keys.length)] ?? name;
  if (Array.isArray(container)) {
    if (step === 'remove') container.splice(Number(key), 1);
    else if (step === 'replace') container[Number(key) || 0] = value;
    else container.push(step === 'copy' ? container[0] : value);
  } else if (step === 'remove') {
    Reflect.deleteProperty(container, key);
  } else {
    container[step === 'add' ? name : key] = step === 'copy' ? container[keys[0] ?? name] : value;
  }
}

for (const route of ROUTES) {
  t.test(`${route}: arbitrary bytes`, (t) => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => check(route, bytes) === 'invalid'),
      {
        numRuns: RUNS,
      },
    );
    t.end();
  });

  t.test(`${route}: arbitrary JSON`, (t) => {
    fc.assert(
      fc.property(anything, (value) => void check(route, bytesOf(value))),
      { numRuns: RUNS },
    );
    t.end();
  });

  t.test(`${route}: a valid request, changed`, (t) => {
    const seen = { ok: 0, invalid: 0 };
    fc.assert(
      fc.property(fc.array(mutation, { minLength: 1, maxLength: 3 }), (mutations) => {
        const body: unknown = JSON.parse(JSON.stringify(FULL[route]));
        for (const one of mutations) mutate(body, one);
        seen[check(route, bytesOf(body))]++;
      }),
      { numRuns: RUNS },
    );
    t.ok(seen.ok > 0 && seen.invalid > 0, 'changes of both kinds were tried');
    t.end();
  });

  t.test(`${route}: a valid request, damaged in its bytes`, (t) => {
    const whole = bytesOf(FULL[route]);
    const damage = fc.array(fc.tuple(fc.nat({ max: whole.length - 1 }), fc.integer({ min: 0, max: 255 })), {
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(damage, fc.nat({ max: whole.length }), (changes, length) => {
        const bytes = whole.slice(0, length < whole.length / 4 ? length : whole.length);
        for (const [at, byte] of changes) bytes[at] = byte;
        check(route, bytes);
      }),
      { numRuns: RUNS },
    );
    t.end();
  });
}
