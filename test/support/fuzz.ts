/** Random bodies, from arbitrary bytes to almost valid requests. */
import fc from 'fast-check';
import type { BodyForm, ModelRoute } from '../../sidecar/contracts/requests.js';
import { CANARY } from '../contract/tables/rule.js';
import {
  FULL_CHAT,
  FULL_COMPATIBLE,
  FULL_DECISIONS,
  FULL_EMBEDDINGS,
  FULL_MESSAGES,
  FULL_RERANK,
  FULL_RESPONSES,
  FULL_SYSTEMONE,
  type Json,
  bytesOf,
} from './bodies.js';
import { anyText } from './texts.js';

const FULL: Readonly<Record<BodyForm, Json>> = {
  chat: FULL_CHAT,
  decisions: FULL_DECISIONS,
  systemone: FULL_SYSTEMONE,
  embeddings: FULL_EMBEDDINGS,
  rerank: FULL_RERANK,
  compatible: FULL_COMPATIBLE,
  'compatible-billed': FULL_COMPATIBLE,
  responses: FULL_RESPONSES,
  messages: FULL_MESSAGES,
  'messages-billed': FULL_MESSAGES,
};

/** The bodies for each route. */
export const ROUTES: readonly ModelRoute[] = ['chat', 'decisions', 'systemone', 'embeddings', 'rerank'];

/** All contracts for a body. */
export const FORMS = Object.keys(FULL) as BodyForm[];

/** Runs of a fuzz test: the first argument of its command line, or few, as part of all tests. */
export function runsOr(few: number): number {
  const asked = Number(process.argv[2]);
  return Number.isSafeInteger(asked) && asked > 0 ? asked : few;
}

const canaryText = fc
  .oneof(fc.constant(''), anyText({ maxLength: 10 }), fc.constantFrom('/', '~1', '__proto__', '7'))
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

function changed(route: BodyForm): fc.Arbitrary<Uint8Array> {
  return fc.array(mutation, { minLength: 1, maxLength: 3 }).map((mutations) => {
    const body: unknown = JSON.parse(JSON.stringify(FULL[route]));
    for (const one of mutations) mutate(body, one);
    return bytesOf(body);
  });
}

function damaged(route: BodyForm): fc.Arbitrary<Uint8Array> {
  const intact = bytesOf(FULL[route]);
  const change = fc.tuple(fc.nat({ max: intact.length - 1 }), fc.integer({ min: 0, max: 255 }));
  return fc
    .tuple(fc.array(change, { minLength: 1, maxLength: 4 }), fc.nat({ max: intact.length }))
    .map(([changes, length]) => {
      const bytes = intact.slice(0, length < intact.length / 4 ? length : intact.length);
      for (const [at, byte] of changes) bytes[at] = byte;
      return bytes;
    });
}

/** Pieces with a meaning for a parser. */
const PIECES = [
  ...['{', '}', '[', ']', '"', ',', ':', '\\', '\ufeff', '\u0000', '\u2028', '-', '1e999', '-0', '9007199254740993'],
  ...['NaN', 'null', 'true', '"\\ud800"', '\\udfff', '"model":"x",', '"__proto__":{},', '[[[[[[[[', '{"a":{"a":'],
  `"${CANARY}":`,
  `"${CANARY}",`,
];

function spliced(route: BodyForm): fc.Arbitrary<Uint8Array> {
  const intact = JSON.stringify(FULL[route]);
  const piece = fc.tuple(fc.nat({ max: intact.length }), fc.constantFrom(...PIECES));
  return fc
    .array(piece, { minLength: 1, maxLength: 3 })
    .map((pieces) => bytesOf(pieces.reduce((text, [at, what]) => text.slice(0, at) + what + text.slice(at), intact)));
}

/** Arbitrary bodies for a route, by their origin. */
export function bodiesFor(route: BodyForm): Readonly<Record<string, fc.Arbitrary<Uint8Array>>> {
  return {
    'arbitrary bytes': fc.uint8Array({ maxLength: 300 }),
    'arbitrary JSON': anything.map((value) => bytesOf(JSON.stringify(value))),
    'a valid request, changed': changed(route),
    'a valid request, damaged in its bytes': damaged(route),
    'a valid request with pieces put in': spliced(route),
  };
}
