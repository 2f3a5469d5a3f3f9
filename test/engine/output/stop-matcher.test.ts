import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { StopMatcher } from '../../../engine/output/stop-matcher.js';
import { rounds } from '../../support/long-form.js';

/** The result of a search over the whole text: the text before the stop that ends first, of those the longest. */
function reference(text: string, stops: readonly string[]): { shown: string; matched: string | undefined } {
  for (let end = 1; end <= text.length; end++) {
    const found = stops.filter((stop) => text.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length)[0];
    if (found !== undefined) return { shown: text.slice(0, end - found.length), matched: found };
  }
  return { shown: text, matched: undefined };
}

t.test('equals a search over the whole text, however the text is cut', (t) => {
  const letters = fc.constantFrom('a', 'b', 'c');
  const stops = fc.array(fc.string({ unit: letters, minLength: 1, maxLength: 5 }), { maxLength: 4 });
  const pieces = fc.array(fc.string({ unit: letters, maxLength: 4 }), { maxLength: 12 });
  fc.assert(
    fc.property(stops, pieces, (stops, pieces) => {
      const matcher = new StopMatcher(stops);
      const shown = pieces.map((piece) => matcher.push(piece)).join('') + matcher.end();
      assert.deepEqual({ shown, matched: matcher.matched }, reference(pieces.join(''), stops));
    }),
    { numRuns: rounds({ short: 150, long: 3000 }) },
  );
  t.end();
});

t.test('never returns a part of a stop that may still be completed', (t) => {
  const matcher = new StopMatcher(['</end>']);
  t.equal(matcher.push('text</en'), 'text');
  t.equal(matcher.push('try'), '</entry');
  t.equal(matcher.push(' </'), ' ');
  t.equal(matcher.push('end>after'), '');
  t.equal(matcher.matched, '</end>');
  t.equal(matcher.push('more'), '');
  t.equal(matcher.end(), '');
  t.end();
});

t.test('returns the buffered text at the end', (t) => {
  const matcher = new StopMatcher(['\n\nUser:']);
  t.equal(matcher.push('answer\n'), 'answer');
  t.equal(matcher.end(), '\n');
  t.end();
});

t.test('a hostile stop takes linear time', (t) => {
  const stop = 'a'.repeat(4095) + 'b';
  const matcher = new StopMatcher([stop, stop + 'c']);
  let shown = 0;
  for (let i = 0; i < 200; i++) shown += matcher.push('a'.repeat(1000)).length;
  t.equal(shown, 200_000 - 4095);
  t.equal(matcher.push('b'), '');
  t.equal(matcher.matched, stop);
  t.end();
});
